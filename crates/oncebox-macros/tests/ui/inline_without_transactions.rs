use oncebox::{BoxError, Context, Memory, Message};

// A store behind an `Arc` has the verbs of a store, and no transactions.
#[oncebox::handler(key = "ship-order", inline)]
async fn ship(_: Message, _: &mut Context<std::sync::Arc<Memory>>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
