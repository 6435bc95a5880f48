use oncebox::{BoxError, Context, Direct, Message};

#[oncebox::handler(key = "ship-order")]
async fn ship(_: Message, cx: &mut Context<Direct>) -> Result<(), BoxError> {
    cx.tx().await?;
    Ok(())
}

fn main() {}
