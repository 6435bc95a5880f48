use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(timeout = "30s")]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
