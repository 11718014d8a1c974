//! Whole documents, invented, in seven languages: every value found is right,
//! and what is not told is not found.

use super::{assert_found, found};
use crate::document::ValidateParameters;

const GERMAN: &str = "\
Beispiel Werkzeuge GmbH
Hafenstraße 12, 20457 Hamburg
Tel: 040 1234567   info@beispiel-werkzeuge.de

Kunde AG
Marktplatz 3
80331 München

Rechnung

Rechnungsnummer:   RE-2024-0815
Kundennummer:      10077
Bestellnummer:     4500012345
Rechnungsdatum:    03.04.2024
Lieferdatum:       28.03.2024
Fällig am:         17.04.2024

Pos  Bezeichnung         Menge   Einzelpreis   Gesamt
1    Schraubendreher     10      12,50         125,00
2    Hammer              2       437,50        875,00

Zwischensumme                                  1.000,00 €
zzgl. 19 % MwSt.                                 190,00 €
Gesamtbetrag                                   1.190,00 €

USt-IdNr.: DE136695976   Amtsgericht Hamburg HRB 12345
IBAN: DE89 3704 0044 0532 0130 00   BIC: COBADEFFXXX
Seite 1 von 1";

const ENGLISH: &str = "\
INVOICE                              Widget Works Ltd
                                     1 Mill Lane, Leeds LS1 1AA
                                     Company number 01234567

Bill to:                             Invoice no: WW-1009
Acme Buyers plc                      Date: 03/04/2024
22 High Street                       Due date: 30/04/2024
VAT no: GB 123 4567 82               PO number: 99812

Description          Qty    Price    Total
Widget, blue         3      100.00   300.00
Shipping                             20.00

Subtotal             £320.00
VAT 20%              £64.00
Total                £384.00
Amount paid          £84.00
Balance due          £300.00

Sort code 12-34-56  Account no 12345678
VAT reg no GB 980 7806 84";

const FRENCH: &str = "\
Exemple Fournitures SARL au capital de 10 000 €
SIRET 123 456 789 00012
N° TVA intracommunautaire : FR40 303 265 045

Client : Société Acheteuse SA
Votre n° TVA : FR83404833048

Facture n° FA-2024-77 du 3 avril 2024
N° de commande : 778812

Désignation     Qté   PU HT      Total HT
Papier A4       100   12,34      1 234,00

Total HT             1 234,00 €
TVA 20,00 %            246,80 €
Total TTC            1 480,80 €
Net à payer          1 480,80 €
Échéance : 03/05/2024
IBAN FR14 2004 1010 0505 0001 3M02 606";

const SPANISH: &str = "\
Ferretería Ejemplo S.L.
CIF: B12345674
Inscrita en el Registro Mercantil de Madrid

Factura nº: 2024/0031      Fecha: 3 de abril de 2024
Cliente: Compras Unidas S.A.
NIF cliente: A58818501

Base imponible    1.000,00 €
IVA 21%             210,00 €
Total factura     1.210,00 €
Vencimiento: 03/05/2024";

const ITALIAN: &str = "\
Fornitore: Officina Esempio S.r.l.
P.IVA: 00743110157
Cliente: Altra Ditta S.p.A.
P.IVA: 02114711003
Fattura n. 12/A del 03/04/2024
Imponibile  100,00
IVA 22%      22,00
Totale fattura  122,00 EUR
Scadenza: 30/04/2024
IBAN: IT60X0542811101000000123456";

const POLISH: &str = "\
Faktura VAT nr FV/12/2024
Data wystawienia: 03.04.2024   Data sprzedaży: 01.04.2024
Termin płatności: 17.04.2024
Sprzedawca:                     Nabywca:
Przykład Sp. z o.o.             Kupiec S.A.
ul. Długa 1, 00-001 Warszawa    ul. Krótka 2
NIP: 856-734-62-15              NIP: 774-00-01-454

Razem netto: 100,00 zł
Kwota VAT: 23,00 zł
Razem brutto: 123,00 zł
Do zapłaty: 123,00 zł";

const DUTCH: &str = "\
Voorbeeld Handel B.V.          KvK 12345678
Straat 1                       BTW NL004495445B01
1234 AB Plaats                 IBAN NL91 ABNA 0417 1643 00

Factuurnummer: 2024-0042
Factuurdatum: 03-04-2024
Vervaldatum: 17-04-2024
Klantnummer: 998

Subtotaal         € 100,00
BTW 21%           €  21,00
BTW 9%            €   0,90
Totaal            € 121,90";

#[test]
fn a_german_invoice_is_read() {
    assert_found(
        GERMAN,
        &[
            ("issuer", "Beispiel Werkzeuge GmbH"),
            ("invoice_number", "RE-2024-0815"),
            ("date", "2024-04-03"),
            ("due_date", "2024-04-17"),
            ("currency", "EUR"),
            ("net_amount", "1000.00"),
            ("tax_amount", "190.00"),
            ("total_amount", "1190.00"),
            ("vat_number", "DE136695976"),
            ("iban", "DE89370400440532013000"),
            ("bic", "COBADEFFXXX"),
        ],
    );
}

#[test]
fn a_english_invoice_is_read() {
    assert_found(
        ENGLISH,
        &[
            ("issuer", "Widget Works Ltd"),
            ("invoice_number", "WW-1009"),
            ("date", "2024-04-03"),
            ("due_date", "2024-04-30"),
            ("currency", "GBP"),
            ("net_amount", "320.00"),
            ("tax_amount", "64.00"),
            ("total_amount", "384.00"),
            ("vat_number", "GB980780684"),
        ],
    );
}

#[test]
fn a_french_invoice_is_read() {
    assert_found(
        FRENCH,
        &[
            ("issuer", "Exemple Fournitures SARL"),
            ("invoice_number", "FA-2024-77"),
            ("date", "2024-04-03"),
            ("due_date", "2024-05-03"),
            ("currency", "EUR"),
            ("net_amount", "1234.00"),
            ("tax_amount", "246.80"),
            ("total_amount", "1480.80"),
            ("vat_number", "FR40303265045"),
            ("iban", "FR1420041010050500013M02606"),
        ],
    );
}

#[test]
fn a_spanish_invoice_is_read() {
    assert_found(
        SPANISH,
        &[
            ("issuer", "Ferretería Ejemplo S.L."),
            ("invoice_number", "2024/0031"),
            ("date", "2024-04-03"),
            ("due_date", "2024-05-03"),
            ("currency", "EUR"),
            ("net_amount", "1000.00"),
            ("tax_amount", "210.00"),
            ("total_amount", "1210.00"),
            ("vat_number", "B12345674"),
        ],
    );
}

#[test]
fn a_italian_invoice_is_read() {
    assert_found(
        ITALIAN,
        &[
            ("issuer", "Officina Esempio S.r.l."),
            ("invoice_number", "12/A"),
            ("date", "2024-04-03"),
            ("due_date", "2024-04-30"),
            ("currency", "EUR"),
            ("net_amount", "100.00"),
            ("tax_amount", "22.00"),
            ("total_amount", "122.00"),
            ("vat_number", "00743110157"),
            ("iban", "IT60X0542811101000000123456"),
        ],
    );
}

#[test]
fn a_polish_invoice_is_read() {
    assert_found(
        POLISH,
        &[
            ("issuer", "Przykład Sp. z o.o."),
            ("invoice_number", "FV/12/2024"),
            ("date", "2024-04-03"),
            ("due_date", "2024-04-17"),
            ("currency", "PLN"),
            ("net_amount", "100.00"),
            ("tax_amount", "23.00"),
            ("total_amount", "123.00"),
            ("vat_number", "8567346215"),
        ],
    );
}

#[test]
fn a_dutch_invoice_is_read_with_two_rates() {
    assert_found(
        DUTCH,
        &[
            ("issuer", "Voorbeeld Handel B.V."),
            ("invoice_number", "2024-0042"),
            ("date", "2024-04-03"),
            ("due_date", "2024-04-17"),
            ("currency", "EUR"),
            ("net_amount", "100.00"),
            ("total_amount", "121.90"),
            ("vat_number", "NL004495445B01"),
            ("iban", "NL91ABNA0417164300"),
        ],
    );
}

#[test]
fn a_credit_note_has_negative_amounts() {
    let text = GERMAN
        .replace("1.190,00 €", "-1.190,00 €")
        .replace("190,00 €", "190,00- €")
        .replace("-1.190,00- €", "-1.190,00 €")
        .replace("1.000,00 €", "(1.000,00 €)")
        .replace("Rechnung\n", "Gutschrift\n");
    let found = found(&text);
    let of = |name: &str| {
        found
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(of("net_amount"), Some("-1000.00"));
    assert_eq!(of("tax_amount"), Some("-190.00"));
    assert_eq!(of("total_amount"), Some("-1190.00"));
}

#[test]
fn a_field_says_where_it_was_read() {
    let lines = crate::extract::lines_of(GERMAN);
    let validated = crate::document::validate(&lines, false, &ValidateParameters::default());
    let number = validated
        .found
        .iter()
        .find(|found| found.value == "RE-2024-0815");
    let number = number.expect("the number is found");
    assert_eq!(number.text, "RE-2024-0815");
    assert_eq!((number.place.page, number.place.line), (1, 11));
    assert!((number.place.x - 20.0).abs() < 0.1, "{:?}", number.place);
}
