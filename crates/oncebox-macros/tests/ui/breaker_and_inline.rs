use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", inline, breaker(failures = 5, pause = "30s"))]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
