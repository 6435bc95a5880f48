use oncebox::{BoxError, Context, Direct, Message};

// `Direct` stores nothing, so it has no transactions.
#[oncebox::handler(key = "ship-order", inline)]
async fn ship(_: Message, _: &mut Context<Direct>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
