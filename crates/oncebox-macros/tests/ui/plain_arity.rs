use oncebox::{BoxError, Memory, Message, Registration, handler};

async fn ship(_: Message) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _: Registration<Memory> = handler("ship-order", ship);
}
