use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order")]
async fn ship(_: Message, _: &Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

#[oncebox::handler(key = "bill-order")]
async fn bill(_: Message, _: &mut String) -> Result<(), BoxError> {
    Ok(())
}

#[oncebox::handler(key = "count-order")]
async fn count(_: Message, _: &mut Context<impl oncebox::Store>) -> Result<(), BoxError> {
    Ok(())
}

fn main() {}
