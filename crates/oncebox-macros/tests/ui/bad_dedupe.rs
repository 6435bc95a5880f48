use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", dedupe(pointer = "order"), retention = "0s")]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
