//! What the sources of the settings declare: fields with their comments, and the types of their values.

use std::collections::BTreeMap;

use syn::{
    Expr, Field, Fields, GenericArgument, Item, Lit, Meta, PathArguments, PathSegment, Type,
};

/// All files that declare fields.
const SOURCES: [&str; 8] = [
    include_str!("../file.rs"),
    include_str!("../proxy.rs"),
    include_str!("../registry.rs"),
    include_str!("../node.rs"),
    include_str!("../control.rs"),
    include_str!("../qos.rs"),
    include_str!("../qos/kubelet.rs"),
    include_str!("../qos/network.rs"),
];

/// What the sources declare, by name.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) sections: BTreeMap<String, Vec<Field>>,
    /// Types whose values are words.
    words: BTreeMap<String, Vec<String>>,
    aliases: BTreeMap<String, Type>,
}

impl Declared {
    pub(super) fn read() -> Self {
        let mut declared = Declared::default();
        for source in SOURCES {
            for item in syn::parse_file(source).expect("Rust").items {
                declared.add(item);
            }
        }
        declared
    }

    fn add(&mut self, item: Item) {
        match item {
            Item::Struct(item) => {
                if let Fields::Named(fields) = item.fields {
                    let fields = fields.named.into_iter().collect();
                    self.sections.insert(item.ident.to_string(), fields);
                }
            }
            Item::Enum(item) => {
                let words = item.variants.iter();
                let words = words.map(|variant| variant.ident.to_string().to_lowercase());
                self.words.insert(item.ident.to_string(), words.collect());
            }
            Item::Type(item) => {
                self.aliases.insert(item.ident.to_string(), *item.ty);
            }
            _ => {}
        }
    }

    /// The name and arguments of a type; of what it contains, if it is an `Option`.
    pub(super) fn resolved<'a>(&'a self, kind: &'a Type) -> &'a PathSegment {
        let Type::Path(path) = kind else {
            panic!("the type of a field is a path");
        };
        let last = path.path.segments.last().expect("a name");
        let name = last.ident.to_string();
        match (self.aliases.get(&name), arguments(last).first()) {
            (Some(kind), _) => self.resolved(kind),
            (None, Some(GenericArgument::Type(inner))) if name == "Option" => self.resolved(inner),
            _ => last,
        }
    }

    /// The values that a type takes, where it says so.
    pub(super) fn values(&self, kind: &PathSegment) -> Option<String> {
        let name = kind.ident.to_string();
        if name == "Within" {
            let bounds: Vec<u64> = arguments(kind).iter().map(bound).collect();
            return Some(match bounds[..] {
                [min, u64::MAX] => format!("{min} and more"),
                [min, max] => format!("{min} to {max}"),
                _ => panic!("two bounds"),
            });
        }
        let (last, before) = self.words.get(&name)?.split_last()?;
        Some(format!("{} or {last}", before.join(", ")))
    }
}

fn arguments(kind: &PathSegment) -> Vec<&GenericArgument> {
    match &kind.arguments {
        PathArguments::AngleBracketed(list) => list.args.iter().collect(),
        _ => Vec::new(),
    }
}

/// A bound of a range. The only one that is not written as a number is the greatest of all.
fn bound(argument: &&GenericArgument) -> u64 {
    match argument {
        GenericArgument::Const(Expr::Lit(literal)) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().expect("a number"),
            _ => panic!("a number"),
        },
        _ => u64::MAX,
    }
}

/// The paragraphs of a field's comment.
pub(super) fn paragraphs(field: &Field) -> Vec<String> {
    let lines = field.attrs.iter().filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        match &pair.value {
            Expr::Lit(literal) if pair.path.is_ident("doc") => match &literal.lit {
                Lit::Str(line) => Some(line.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        }
    });
    let lines: Vec<String> = lines.collect();
    let paragraphs = lines.split(String::is_empty);
    paragraphs.map(|lines| lines.join(" ")).collect()
}
