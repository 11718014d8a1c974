//! The formats of amounts.

use super::*;

fn read(text: &str, decimals: Decimals) -> Option<String> {
    Some(printed(text)?.read(decimals, false)?.text)
}

#[test]
fn amounts_are_read_in_every_format_that_has_one_meaning() {
    for (text, value) in [
        ("1.234,56", "1234.56"),
        ("1,234.56", "1234.56"),
        ("1 234,56", "1234.56"),
        ("1\u{202f}234,56 €", "1234.56"),
        ("CHF 1'234.50", "1234.50"),
        ("1,23,456.00", "123456.00"),
        ("1.234.567,00", "1234567.00"),
        ("€ 0,99", "0.99"),
        ("$4.11", "4.11"),
        ("EUR49.00", "49.00"),
        ("29.99 € TTC", "29.99"),
        ("€ 12,-", "12"),
        ("1.234.567 zł", "1234567"),
        ("$ 1200", "1200"),
    ] {
        assert_eq!(
            read(text, Decimals::Unknown).as_deref(),
            Some(value),
            "{text}"
        );
    }
}

#[test]
fn a_sign_is_kept_wherever_it_stands() {
    for text in [
        "-9,32",
        "€ -9,32",
        "-€9.32",
        "9,32-",
        "(9.32)",
        "−9,32 €",
        "(€ 9.32)",
    ] {
        assert_eq!(
            read(text, Decimals::Unknown).as_deref(),
            Some("-9.32"),
            "{text}"
        );
    }
    assert_eq!(read("-0.00", Decimals::Unknown).as_deref(), Some("0.00"));
}

#[test]
fn three_digits_after_one_mark_need_to_be_told() {
    assert_eq!(read("€ 1.234", Decimals::Unknown), None);
    assert_eq!(read("€ 1.234", Decimals::Comma).as_deref(), Some("1234"));
    assert_eq!(read("€ 1.234", Decimals::Point), None);
    assert_eq!(read("€ 1,234", Decimals::Point).as_deref(), Some("1234"));
    assert_eq!(read("€ 0.500", Decimals::Comma), None);
}

#[test]
fn what_is_no_amount_is_none() {
    for text in [
        "",
        "12",
        "21%",
        "21,00 %",
        "19.04.2014",
        "22-9-2022",
        "1 278.61",
        "12,3,4",
        "1.23.456,00",
        "12.50 kg",
        "5 x 3.00",
        "10.00 20.00",
        "1,2345",
        "12.345.6",
        "+31 20 7604101",
        "- -5.00-",
        "999999999999999999.00",
        "1,234 567",
    ] {
        assert_eq!(read(text, Decimals::Unknown), None, "{text}");
    }
}

#[test]
fn a_document_tells_its_decimals_or_the_hint_does() {
    let of = |texts: &[&str]| decimals(texts.iter().copied(), Decimals::Comma);
    assert_eq!(of(&["5.00", "1,234"]), Decimals::Point);
    assert_eq!(of(&["5,00"]), Decimals::Comma);
    assert_eq!(of(&["5.00", "6,00"]), Decimals::Comma);
    assert_eq!(
        decimals(["7"].into_iter(), Decimals::Unknown),
        Decimals::Unknown
    );
}

#[test]
fn an_amount_prints_as_it_is_read_back() {
    for hundredths in [-123_456, -5, 0, 7, 100, 99_999_999] {
        let amount = Amount::of(hundredths);
        let again = printed(&amount.text)
            .unwrap()
            .read(Decimals::Unknown, false);
        assert_eq!(again, Some(amount));
    }
}
