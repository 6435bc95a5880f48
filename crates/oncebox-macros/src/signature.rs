//! Checks that a function is a handler, as far as its tokens show. The compiler checks the rest.

use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::{
    Error, FnArg, GenericArgument, GenericParam, Generics, ItemFn, PathArguments, PathSegment, ReturnType,
    Signature, Type, TypePath, WherePredicate, parse_quote_spanned,
};

/// Returns the store of a handler: the `S` of its `&mut Context<S>`.
pub(crate) fn store_of(function: &ItemFn) -> Result<Type, Error> {
    let signature = &function.sig;
    let name = &signature.ident;
    if signature.asyncness.is_none() {
        let what = format!("a handler is an `async fn`: write `async fn {name}`");
        return Err(Error::new(signature.fn_token.span(), what));
    }
    let shape = format!("`async fn {name}(message: M, cx: &mut Context<S>) -> Result<(), E>`");
    let arguments: Vec<&FnArg> = signature.inputs.iter().collect();
    let [FnArg::Typed(_), FnArg::Typed(context)] = arguments[..] else {
        let takes = match (signature.receiver(), arguments.len()) {
            (Some(_), _) => "`self`".to_owned(),
            (None, 1) => "1 parameter".to_owned(),
            (None, count) => format!("{count} parameters"),
        };
        let what = format!(
            "a handler takes two parameters, its message and its context, and this one takes {takes}: write {shape}; what else it needs it gets with `cx.data()`"
        );
        return Err(Error::new(signature.paren_token.span.join(), what));
    };
    let store = store_in(&context.ty).ok_or_else(|| wrong_context(&context.ty))?;
    check_result(signature, &shape)?;
    Ok(store)
}

/// Returns the `S` of `&mut Context<S>`, or the store of an alias of a context, which the compiler finds.
fn store_in(context: &Type) -> Option<Type> {
    let Type::Reference(reference) = bare(context) else { return None };
    reference.mutability?;
    let elem = bare(&reference.elem);
    let Type::Path(TypePath { qself: None, path }) = elem else { return None };
    let last = path.segments.last()?;
    if last.ident != "Context" {
        return Some(parse_quote_spanned!(elem.span()=> <#elem as ::oncebox::HandlerContext>::Store));
    }
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
            GenericArgument::Type(Type::ImplTrait(_)) => None,
            GenericArgument::Type(store) if arguments.args.len() == 1 => Some(store.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn wrong_context(context: &Type) -> Error {
    let text =
        context.to_token_stream().to_string().replace("& ", "&").replace(" < ", "<").replace(" >", ">");
    let what = if text.contains("Context<impl ") {
        "the store needs a name: write `async fn name<S: Store>(message: M, cx: &mut Context<S>)`".to_owned()
    } else {
        format!(
            "the second parameter of a handler is `&mut Context<S>` with the type of its store, as in `cx: &mut Context<Memory>`; this is `{text}`"
        )
    };
    Error::new_spanned(context, what)
}

fn check_result(signature: &Signature, shape: &str) -> Result<(), Error> {
    let ReturnType::Type(_, returned) = &signature.output else {
        let what = format!("a handler returns `Result<(), E>`, and this one returns nothing: write {shape}");
        return Err(Error::new_spanned(signature, what));
    };
    // Any `Result` is valid, aliases included: those of `anyhow`, `std::io` and users.
    let result = match bare(returned) {
        Type::Path(TypePath { path, .. }) => path.segments.last(),
        _ => None,
    };
    let of_nothing = |segment: &PathSegment| match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(Type::Tuple(unit))) => unit.elems.is_empty(),
            _ => segment.ident != "Result",
        },
        _ => true,
    };
    match result {
        Some(last) if last.ident.to_string().ends_with("Result") && of_nothing(last) => Ok(()),
        _ => {
            let text = written(returned);
            let what =
                format!("a handler returns `Result<(), E>`, and this one returns `{text}`: write {shape}");
            Err(Error::new_spanned(returned, what))
        }
    }
}

/// Formats a type as its author would write it.
fn written(ty: &Type) -> String {
    let mut text = ty.to_token_stream().to_string();
    for (tokens, code) in [("& ", "&"), (" < ", "<"), (" >", ">"), (" ,", ","), (" :: ", "::")] {
        text = text.replace(tokens, code);
    }
    text
}

/// Returns a type without the invisible groups that macros add.
fn bare(mut ty: &Type) -> &Type {
    while let Type::Group(group) = ty {
        ty = &group.elem;
    }
    ty
}

/// Returns the type parameters of a function, for another one that calls it. Each call chooses the lifetimes.
pub(crate) fn type_parameters(generics: &Generics) -> Generics {
    let mut kept = generics.clone();
    kept.params = kept.params.into_iter().filter(|one| !matches!(one, GenericParam::Lifetime(_))).collect();
    if let Some(clause) = &mut kept.where_clause {
        let predicates = std::mem::take(&mut clause.predicates).into_iter();
        clause.predicates = predicates.filter(|one| !matches!(one, WherePredicate::Lifetime(_))).collect();
    }
    kept
}
