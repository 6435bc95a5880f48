use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", timeout = "30 seconds", retry(first = "1m", max = "1s"))]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
