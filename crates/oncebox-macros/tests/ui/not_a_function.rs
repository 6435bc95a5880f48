#[oncebox::handler(key = "ship-order")]
struct Ship;

fn main() {}
