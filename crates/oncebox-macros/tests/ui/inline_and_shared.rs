use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", inline, share_commit = 8)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
