use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", rate(count = 20), breaker = 5, retry_for = "never", dedupe)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
