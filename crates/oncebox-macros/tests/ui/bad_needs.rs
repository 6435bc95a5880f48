use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", needs = "Mailer", unordered = true)]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[oncebox::handler(key = "bill-order", inline, unordered, needs())]
async fn bill(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
