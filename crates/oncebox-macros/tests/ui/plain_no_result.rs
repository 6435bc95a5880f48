use oncebox::{Context, Memory, Message, Registration, handler};

async fn ship(_: Message, _: &mut Context<Memory>) {}

async fn bill(_: Message, _: &mut Context<Memory>) -> Result<u64, oncebox::BoxError> {
    Ok(7)
}

fn main() {
    let _: Registration<Memory> = handler("ship-order", ship);
    let _: Registration<Memory> = handler("bill-order", bill);
}
