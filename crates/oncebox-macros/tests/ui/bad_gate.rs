use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(
    key = "ship-order",
    rate = "20 per second",
    breaker(failures = 0, pause = "30s"),
    on_poisoned = "skipp"
)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
