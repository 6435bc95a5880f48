use oncebox::{BoxError, Context, Direct, Inbox, Memory, Message, handler};

async fn ship(_: Message, _: &mut Context<Direct>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _ = Inbox::builder("orders", Memory::new()).on("order.placed", handler("ship-order", ship));
}
