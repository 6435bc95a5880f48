use oncebox::{BatchContext, BoxError, Context, Memory, Message, Registration, batch_handler};

async fn ship(_: Message, _: &mut BatchContext<Memory>) -> Result<(), BoxError> {
    Ok(())
}

async fn bill(_: Vec<Message>, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _: Registration<Memory> = batch_handler("ship-orders", ship);
    let _: Registration<Memory> = batch_handler("bill-orders", bill);
}
