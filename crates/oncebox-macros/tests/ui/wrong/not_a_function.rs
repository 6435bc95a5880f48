use oncebox::{BoxError, Context, Memory, Message};

#[oncebox::handler(key = "ship-order")]
struct Ship;

fn main() {}
