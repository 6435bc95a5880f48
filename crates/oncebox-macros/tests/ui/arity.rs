use oncebox::{BoxError, Message};

#[oncebox::handler(key = "ship-order")]
async fn ship(_: Message) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
