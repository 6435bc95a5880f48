use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order")]
async fn ship(_: Message, _: &mut Context<Memory>) {}

#[oncebox::handler(key = "bill-order")]
async fn bill(_: Message, _: &mut Context<Memory>) -> Result<u64, BoxError> {
    Ok(1)
}

#[oncebox::handler(key = "count-order")]
async fn count(_: Message, _: &mut Context<Memory>) -> bool {
    true
}

fn main() {}
