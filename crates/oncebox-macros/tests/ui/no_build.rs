use oncebox::{Inbox, Memory, Message};

async fn receive(message: Message) -> Result<(), oncebox::Error> {
    let inbox = Inbox::builder("orders", Memory::new());
    inbox.accept(message).await?;
    let _running = inbox.start();
    Ok(())
}

fn main() {}
