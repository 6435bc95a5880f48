use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", retry_for(String = "never"))]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
