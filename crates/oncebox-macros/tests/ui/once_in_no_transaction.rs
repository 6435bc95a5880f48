use oncebox::{Inbox, Memory, Message};

async fn receive(inbox: Inbox<Memory>, message: Message) -> Result<(), oncebox::Error> {
    let mut tx = String::new();
    inbox.once(&mut tx, &message, "ship-order").await?;
    Ok(())
}

fn main() {}
