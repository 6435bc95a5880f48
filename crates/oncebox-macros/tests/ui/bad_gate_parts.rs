use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(
    key = "ship-order",
    rate(count = 20, per = "2d"),
    breaker(failures = 5, pause = "1m", max_pause = "30s")
)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
