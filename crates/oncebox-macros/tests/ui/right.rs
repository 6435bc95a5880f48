use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", inline)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {
    let _ = ship::registration();
}
