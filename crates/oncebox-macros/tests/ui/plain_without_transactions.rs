use oncebox::{BoxError, Context, Direct, Message, handler};

async fn ship(_: Message, _: &mut Context<Direct>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _ = handler("ship-order", ship).inline();
    let _ = handler("ship-order", ship).share_commit(64);
}
