use oncebox::{BoxError, Context, Memory, Message, Registration, handler};

async fn ship(_: Message, _: &Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _: Registration<Memory> = handler("ship-order", ship);
}
