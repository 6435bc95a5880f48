use oncebox::{BoxError, Context, Inbox, Memory, Message};

#[oncebox::handler(key = "ship-order", types = "order.placed")]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _ = Inbox::builder("orders", Memory::new()).register(ship);
}
