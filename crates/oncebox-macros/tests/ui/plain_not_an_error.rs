use oncebox::{Context, Memory, Message, Registration, handler};

struct Declined;

async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), Declined> {
    Ok(())
}

fn main() {
    let _: Registration<Memory> = handler("ship-order", ship);
}
