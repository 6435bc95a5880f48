use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", concurrency = 0, share_commit = 65)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
