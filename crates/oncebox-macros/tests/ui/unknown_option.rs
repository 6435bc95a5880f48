use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", time_out = "30s", priority = 3)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
