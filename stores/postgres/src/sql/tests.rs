//! Names in statements.

use super::*;

#[test]
fn names_are_put_in_quoted() {
    let place = Place { schema: "app".into(), prefix: "box_".into() };
    let sql = place
        .render("SELECT 1 FROM @proof p WHERE nextval('@counter') & 63 = 1; CREATE INDEX #x_y ON @%s_%s");
    assert_eq!(
        &*sql,
        "SELECT 1 FROM \"app\".\"box_proof\" p WHERE nextval('\"app\".\"box_counter\"') & 63 = 1; \
         CREATE INDEX \"box_x_y\" ON \"app\".\"box_%s_%s\""
    );
}

#[test]
fn only_plain_names_are_taken() {
    assert!(Place::default().check().is_ok());
    for bad in ["", "a b", "a\"b", "1a", "a;b", "é", &"x".repeat(33)] {
        for place in [
            Place { schema: bad.into(), ..Place::default() },
            Place { prefix: bad.into(), ..Place::default() },
        ] {
            let error = place.check().expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        }
    }
}
