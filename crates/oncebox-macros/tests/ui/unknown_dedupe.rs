use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order", dedupe = "contents", retry_for(Busy, std::io::Error = "nver"))]
async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
