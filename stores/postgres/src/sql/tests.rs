//! Rendering of names in statements.

use super::*;

#[test]
fn names_are_quoted() {
    let place = Namespace { schema: "app".into(), prefix: "box_".into() };
    let sql = place.render(
        "a oncebox_proof, 'oncebox_counter' & 63, \"oncebox_x_y\" on oncebox_%s_%s in 'public', \"public\"",
    );
    assert_eq!(
        &*sql,
        "a \"app\".\"box_proof\", '\"app\".\"box_counter\"' & 63, \"box_x_y\" on \"app\".\"box_%s_%s\" in 'app', \"app\""
    );
}

#[test]
fn only_plain_names_are_taken() {
    assert!(Namespace::default().check().is_ok());
    for bad in ["", "a b", "a\"b", "1a", "a;b", "é", &"x".repeat(33)] {
        for place in [
            Namespace { schema: bad.into(), ..Namespace::default() },
            Namespace { prefix: bad.into(), ..Namespace::default() },
        ] {
            let error = place.check().expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        }
    }
}
