//! What looks like a field and is none, and what could be two things.

use super::{found_with, value};
use crate::document::{CheckName, Field, ValidateParameters, validate};
use crate::extract::lines_of;

/// That nothing is found for a field in any of the texts.
#[track_caller]
fn none(field: Field, texts: &[&str]) {
    for text in texts {
        assert_eq!(value(text, field), None, "{text}");
    }
}

#[track_caller]
fn some(field: Field, expected: &str, texts: &[&str]) {
    for text in texts {
        assert_eq!(value(text, field).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn other_numbers_are_not_the_invoice_number() {
    none(
        Field::InvoiceNumber,
        &[
            "Order number: 4711",
            "Customer no. 10077\nPhone: 040 123456",
            "Invoice no: 03/04/2024",
            "Invoice no: pending",
            "Invoice no: 12.50",
            "Invoice 1 of 2",
            "Invoice 2024",
            "Invoice total 4711",
            "Original invoice number: 17",
            "INVOICE\n12 Mill Lane",
            "Page 1 of 3",
            "Kundennummer: 998\nBestellnummer: 77",
            "Please quote the invoice number with your payment of 12.50",
            "Invoice no. 1\nInvoice no. 2",
            "Invoice   Date         Amount\n1001      2024-04-03   5.00\n1002      2024-04-04   6.00",
        ],
    );
}

#[test]
fn the_invoice_number_is_found_after_right_of_and_below_its_label() {
    some(
        Field::InvoiceNumber,
        "A-17",
        &[
            "Invoice number A-17",
            "INVOICE NO.: A-17",
            "Invoice # A-17",
            "Invoice No      A-17",
            "Invoice No      Date          Customer\nA-17            2024-04-03    998",
            "Invoice A-17",
            "INVOICE\n# A-17",
            "Rechnung Nr. A-17",
            "Facture n°A-17 du 3 avril 2024",
            "Customer no. 9   Invoice no. A-17   Order no. 8",
            "Invoice no. A-17\nInvoice no. A-17",
            "Original invoice number: 17\nCredit note no. A-17",
        ],
    );
}

#[test]
fn a_date_of_something_else_is_not_the_invoice_date() {
    none(
        Field::Date,
        &[
            "Order date: 2024-04-03",
            "Due date: 2024-04-03",
            "Balance due date: 2024-04-03",
            "VAT date: 2024-04-03",
            "Delivery date   2024-04-03",
            "Date of birth: 2024-04-03",
            "Shipping note date: 2024-04-03",
            "3 April 2024",
            "Date: 30 days",
            "Date: 31/02/2024",
            "Invoice date: 2024-04-03\nInvoice date: 2024-04-04",
        ],
    );
    some(
        Field::Date,
        "2024-04-03",
        &[
            "Order date: 2024-04-01   Invoice date: 2024-04-03   Due date: 2024-05-03",
            "Date: 2024-05-01\nInvoice date: 2024-04-03",
            "Date   Due date\n2024-04-03   2024-05-03",
            "Date: 3 April 2024",
        ],
    );
}

#[test]
fn day_and_month_are_told_by_the_document_or_the_hint_or_not_at_all() {
    let date = |text: &str, locale| {
        let found = found_with(text, locale);
        let date = found.into_iter().find(|(field, _)| field == "date");
        date.map(|(_, value)| value)
    };
    let text = "Invoice date: 03/04/2024";
    assert_eq!(date(text, None), None);
    assert_eq!(date(text, Some("en-GB")).as_deref(), Some("2024-04-03"));
    assert_eq!(date(text, Some("en-US")).as_deref(), Some("2024-03-04"));
    assert_eq!(date(text, Some("en")), None);
    assert_eq!(date(text, Some("klingon")), None);
    let told = "Invoice date: 03/04/2024\nDue date: 30/04/2024";
    assert_eq!(date(told, Some("en-US")).as_deref(), Some("2024-04-03"));
    let both = "Invoice date: 03/04/2024\nDue date: 30/04/2024\nShip date   04/30/2024";
    assert_eq!(date(both, Some("en-US")), None);
    assert_eq!(
        date("Factuurdatum: 03-04-2024", None).as_deref(),
        Some("2024-04-03")
    );
}

#[test]
fn a_total_of_something_else_is_not_the_total() {
    none(
        Field::TotalAmount,
        &[
            "Total hours   12.50",
            "Total weight   12.50 kg",
            "Total items: 5",
            "Total quantity   100.00",
            "Subtotal   12.50",
            "VAT Total: 20.00",
            "Total discount   -5.00",
            "Total   24.99   29.99",
            "Total 1 278.61",
            "Total: € 1.234",
            "Total   100.00\nVAT 20%   20.00",
            "Total   100.00\nTotal   120.00",
            "Total Commander licence   40.00",
            "Item   Total\nPaper   12.00\nPens   13.00",
        ],
    );
    some(
        Field::TotalAmount,
        "1234.50",
        &[
            "Total: 1,234.50",
            "TOTAL (EUR)   1.234,50",
            "Grand total   $1,234.50",
            "Total due on April 3, 2024   1,234.50",
            "Gesamtbetrag inkl. MwSt.   1.234,50 €",
            "Subtotal   1,000.00\nTax   234.50\nTotal   1,234.50",
            "Grand total   1,234.50\nPaid   1,000.00\nBalance due   234.50",
            "Total   2   1,000.00   234.50   1,234.50",
            "Total   1,000.00\nVAT   234.50\nTotal   1,234.50",
            "Subtotal   17.00\nSubtotal   983.00\nSubtotal   1,000.00\nTax   234.50\nTotal   1,234.50",
        ],
    );
}

#[test]
fn tax_is_an_amount_and_not_its_rate_or_base() {
    some(
        Field::TaxAmount,
        "20.00",
        &[
            "VAT 20%   20.00",
            "VAT (20%): 20.00",
            "Tax 20% on $ 100.00   $ 20.00",
            "20 % MwSt.   20,00",
            "VAT   20 %   £20.00",
            "Net      VAT     Gross\n60.00    12.00   72.00\n40.00     8.00   48.00\n100.00   20.00  120.00",
        ],
    );
    none(
        Field::TaxAmount,
        &[
            "VAT 20%",
            "VAT 20%   100.00   20.00",
            "VAT 20%   20.00\nVAT 5%   1.00",
            "Tax advice   500.00",
            "VAT registration   20.00",
            "Net      VAT     Gross\n60.00    12.00   72.00\n40.00     8.00   48.00",
            "Net   VAT   Gross\n60.00   12.00   72.00\n40.00   8.00   48.00\n100.00   20.00   120.00",
        ],
    );
}

#[test]
fn of_two_accounts_none_is_chosen() {
    let (one, other) = ("NL91 ABNA 0417 1643 00", "DE89 3704 0044 0532 0130 00");
    some(
        Field::Iban,
        "NL91ABNA0417164300",
        &[
            one,
            &format!("IBAN: {one}\nIBAN: {one}"),
            "IBAN   NL91   ABNA   0417   1643   00",
            "Order NL91 5\nIBAN NL91ABNA0417164300",
        ],
    );
    none(
        Field::Iban,
        &[
            &format!("IBAN: {one}\nIBAN: {other}"),
            "IBAN: US1234567890",
            "Reference NL19 ABNA 0417 1643 00",
            &format!("We will debit your account\nIBAN: {one}"),
            &format!("Wir ziehen den Betrag per Lastschrift ein: {one}"),
            "FR76 ***********************",
        ],
    );
}

#[test]
fn the_buyers_vat_number_is_not_the_issuers() {
    none(
        Field::VatNumber,
        &[
            "Your VAT number: DE136695976",
            "Uw BTW nummer: NL004495445B01",
            "Bill to:\nSample Buyer\nVAT no: DE136695976",
            "VAT no: DE136695976\nVAT no: FR40303265045",
            "VAT no: 123456789",
            "Tax ID: 12-3456789",
            "Phone DE136695976",
        ],
    );
    some(
        Field::VatNumber,
        "DE136695976",
        &[
            "VAT no: DE 136 695 976",
            "Bill to:   Sample Buyer\nVAT no: FR40303265045\n\nUSt-IdNr. DE136695976",
            "Seller:            Buyer:\nVAT: DE136695976   VAT: FR40303265045",
        ],
    );
}

#[test]
fn the_only_company_of_a_document_may_be_its_buyer() {
    none(
        Field::Issuer,
        &[
            "Buyer Trading GmbH\nMarktplatz 3\n80331 Stadt\n\nRechnung Nr. 17",
            "Bill to: Buyer Trading Ltd\nIBAN NL91ABNA0417164300",
            "Sample Bank AG   IBAN DE89 3704 0044 0532 0130 00",
            "From: Berlin",
            "Vendor ID: 4711",
            "One Sample Ltd   Company number 1\nOther Sample Ltd   Company number 2",
            "DELIVERED AS AGREED   IBAN NL91ABNA0417164300",
            "1234 AB Plaats   KvK 12345678",
        ],
    );
    some(
        Field::Issuer,
        "Sample Trading Ltd",
        &[
            "Sold by: Sample Trading Ltd",
            "Seller\nSample Trading Ltd\nBuyer\nOther Ltd",
            "Sample Trading Ltd, registered office: 1 Mill Lane\nBill to:\nOther Ltd",
            "Sample Trading Ltd\n1 Mill Lane\nwww.sample-trading.co.uk",
            "All goods are sold by Sample Trading Ltd",
        ],
    );
    some(
        Field::Issuer,
        "Sample Trading",
        &["Sample Trading\n1 Mill Lane\nhello@sampletrading.com"],
    );
}

#[test]
fn a_sign_of_several_currencies_needs_a_country() {
    none(
        Field::Currency,
        &[
            "Total $5.00",
            "Total $5.00\nCanada, United States",
            "Total 5.00",
            "Price €5.00\nFee £1.00",
            "Total 50 kr",
        ],
    );
    some(
        Field::Currency,
        "USD",
        &[
            "Total $5.00\nUnited States",
            "Total US$5.00",
            "Total 5.00 USD",
            "Currency: USD",
        ],
    );
    some(
        Field::Currency,
        "EUR",
        &[
            "Total €5.00",
            "Fee £1.00\nGrand total   €5.00",
            "Total 5,00 EUR",
        ],
    );
}

#[test]
fn a_bic_is_labelled() {
    some(
        Field::Bic,
        "ABNANL2A",
        &[
            "BIC: ABNANL2A",
            "SWIFT/BIC   ABNANL2A",
            "IBAN NL91ABNA0417164300 BIC ABNANL2A",
        ],
    );
    none(
        Field::Bic,
        &[
            "ABNANL2A",
            "SWIFT DEUTSCHE BANK",
            "BIC: IBAN:",
            "BIC ABNANL2A\nBIC COBADEFF",
        ],
    );
}

#[test]
fn what_does_not_agree_is_told_with_both_values() {
    let text = "Invoice date: 2024-04-03\nDue date: 2024-04-01\nNet amount   100.00\nVAT   20.00\nGrand total   121.00\n\
                IBAN: NL19 ABNA 0417 1643 00\nVAT no: DE136695978";
    let validated = validate(&lines_of(text), false, &ValidateParameters::default());
    let told: Vec<_> = validated
        .checks
        .iter()
        .map(|check| {
            (
                check.check,
                check.passed,
                check.stated.as_str(),
                check.expected.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (CheckName::IbanCheckDigits, false, "19", "91"),
            (CheckName::VatCheckDigits, false, "8", "6"),
            (CheckName::NetPlusTax, false, "121.00", "120.00"),
            (CheckName::DateOrder, false, "2024-04-01", "2024-04-03"),
        ]
    );
    let right = "Net amount   100.00\nVAT   20.00\nGrand total   120.00";
    let validated = validate(&lines_of(right), false, &ValidateParameters::default());
    assert_eq!(validated.checks.len(), 1);
    assert!(validated.checks.iter().all(|check| check.passed));
}
