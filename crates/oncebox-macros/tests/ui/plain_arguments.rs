use oncebox::{BoxError, Context, Memory, Message, Registration, handler};

async fn ship(_: &mut Context<Memory>, _: Message) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _: Registration<Memory> = handler("ship-order", ship);
}
