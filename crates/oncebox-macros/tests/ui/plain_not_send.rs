use std::rc::Rc;

use oncebox::{BoxError, Context, Memory, Message, Registration, handler};

async fn ship(message: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    let total = Rc::new(message);
    cx.tx().await?;
    drop(total);
    Ok(())
}

fn main() {
    let _: Registration<Memory> = handler("ship-order", ship);
}
