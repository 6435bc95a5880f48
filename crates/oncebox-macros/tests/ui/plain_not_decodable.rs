use oncebox::{BoxError, Context, Memory, Registration, handler};

struct OrderPlaced;

async fn ship(_: OrderPlaced, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _: Registration<Memory> = handler("ship-order", ship);
}
