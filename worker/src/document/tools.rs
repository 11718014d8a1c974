//! What the tools take and give.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::extract::{Extracted, Line};

/// A field of a supplier's document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// Who sells.
    Issuer,
    /// The invoice's number.
    InvoiceNumber,
    /// The invoice's date.
    Date,
    /// When to pay.
    DueDate,
    /// As ISO 4217 writes it.
    Currency,
    /// The sum without tax.
    NetAmount,
    /// The tax.
    TaxAmount,
    /// The sum with tax.
    TotalAmount,
    /// The issuer's VAT number.
    VatNumber,
    /// The account to pay to.
    Iban,
    /// The bank of that account.
    Bic,
}

impl Field {
    /// All of them, in the order in which a note tells them.
    pub const ALL: [Self; 11] = [
        Self::Issuer,
        Self::InvoiceNumber,
        Self::Date,
        Self::DueDate,
        Self::Currency,
        Self::NetAmount,
        Self::TaxAmount,
        Self::TotalAmount,
        Self::VatNumber,
        Self::Iban,
        Self::Bic,
    ];

    /// Its name in parameters and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Issuer => "issuer",
            Self::InvoiceNumber => "invoice_number",
            Self::Date => "date",
            Self::DueDate => "due_date",
            Self::Currency => "currency",
            Self::NetAmount => "net_amount",
            Self::TaxAmount => "tax_amount",
            Self::TotalAmount => "total_amount",
            Self::VatNumber => "vat_number",
            Self::Iban => "iban",
            Self::Bic => "bic",
        }
    }

    /// What a person calls it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Issuer => "issuer",
            Self::InvoiceNumber => "invoice number",
            Self::Date => "invoice date",
            Self::DueDate => "due date",
            Self::Currency => "currency",
            Self::NetAmount => "net amount",
            Self::TaxAmount => "tax amount",
            Self::TotalAmount => "total amount",
            Self::VatNumber => "VAT number",
            Self::Iban => "IBAN",
            Self::Bic => "BIC",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `extract`: which document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtractParameters {
    /// The job's document; left out when its text came with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<BlobRef>,
}

/// A reference to a blob: `{"blob": "sha256:…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// Its hash.
    pub blob: String,
}

/// What `extract` gives: it fits a saved outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtractOutput {
    /// `application/pdf` or `text/plain`.
    pub media_type: String,
    /// The number of pages; one for plain text.
    pub pages: u32,
    /// The lines that are not empty.
    pub lines: Vec<Line>,
    /// Whether the document has more lines than these.
    pub truncated: bool,
}

impl From<Extracted> for ExtractOutput {
    fn from(extracted: Extracted) -> Self {
        Self {
            media_type: extracted.media_type,
            pages: extracted.pages,
            lines: extracted.lines,
            truncated: extracted.lines_truncated,
        }
    }
}

/// `validate`: what is asked of the document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidateParameters {
    /// The fields that the document must have.
    pub required: Vec<Field>,
    /// Where it comes from (`de-DE`), for what cannot be told from itself: the
    /// order of day and month, the mark before decimals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
}

/// What `validate` gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidateOutput {
    /// What was required.
    pub required: Vec<Field>,
    /// What was found, required or not.
    pub found: Vec<FieldFound>,
    /// What was required and not found, or is ambiguous.
    pub missing: Vec<Field>,
    /// Whether the document goes on after the lines that were looked at. Then no
    /// amount is found: a sum of the first pages is not the total.
    pub truncated: bool,
    /// The checks that could be made.
    pub checks: Vec<Check>,
}

/// A field and where it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldFound {
    /// Which.
    pub field: Field,
    /// Its value: dates as ISO 8601, amounts with a point and no grouping,
    /// numbers of banks and taxes without spaces.
    pub value: String,
    /// The text it was read from.
    pub text: String,
    /// Where that stands.
    pub place: Place,
}

/// A place in a document; units are those of [`Line`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Counted from one.
    pub page: u32,
    /// The line of the page, counted from one.
    pub line: u32,
    /// From the left.
    pub x: f64,
    /// From the top.
    pub y: f64,
}

/// A check and the two values it compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Which.
    pub check: CheckName,
    /// Whether it passed.
    pub passed: bool,
    /// What the document says.
    pub stated: String,
    /// What it would have to say, or the bound that it must keep.
    pub expected: String,
}

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    /// The check digits of the IBAN (ISO 13616).
    IbanCheckDigits,
    /// The check digits of the VAT number, by its country.
    VatCheckDigits,
    /// The total is the net amount and the tax.
    NetPlusTax,
    /// The due date is not before the date.
    DateOrder,
}

/// `draft` takes nothing: it writes of what was validated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftParameters {}

/// What `draft` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftOutput {
    /// The note, for a person to read, edit and send.
    pub note: String,
}
