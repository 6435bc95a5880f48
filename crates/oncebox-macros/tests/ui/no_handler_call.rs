use oncebox::{BoxError, Context, Inbox, Memory, Message};

async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _ = Inbox::builder("orders", Memory::new()).on("order.placed", ship);
}
