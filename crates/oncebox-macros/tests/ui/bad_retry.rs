use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", retry = "quik")]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
