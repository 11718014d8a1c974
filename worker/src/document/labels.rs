//! The words that announce a field, in the languages of the documents.
//!
//! Owns the vocabulary and nothing else. Phrases are as [`super::sheet::fold`]
//! leaves them: small letters without accents, one space between words. The
//! longest phrase at a place wins, so a phrase that is no field ("order date")
//! keeps its words from being read as one that is ("date").

use std::collections::HashMap;
use std::sync::LazyLock;

/// Words of the longest phrase.
pub(super) const PHRASE_WORDS_MAX: usize = 5;

/// What a phrase announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// The invoice's number, without a doubt.
    Number,
    /// A title such as "invoice", which a number may follow.
    Title,
    /// The invoice's date.
    Date,
    /// A date, most likely the invoice's.
    AnyDate,
    /// When to pay.
    Due,
    /// What the invoice comes to with tax.
    Total,
    /// A total of some kind, or what is left to pay.
    AnyTotal,
    /// The sum without tax.
    Net,
    /// A sum, most likely without tax.
    AnyNet,
    /// Tax: an amount of it, or the number of who pays it.
    Tax,
    /// The tax number, of the country whose number needs no prefix here.
    Vat(Option<&'static str>),
    /// The tax number of the reader.
    BuyerVat,
    Iban,
    Bic,
    Currency,
    /// Who sells.
    Seller,
    /// Who buys, or where the goods go.
    Buyer,
    /// What a company says of itself: its register, its seat, its capital.
    Register,
    /// Something else.
    Other,
}

/// Whether a phrase tells the language of its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tongue {
    English,
    /// One in which the day stands before the month.
    DayFirst,
    /// Shared by several.
    Any,
}

type Entry = (Label, Tongue, &'static [&'static str]);

static PHRASES: LazyLock<HashMap<&'static str, (Label, Tongue)>> = LazyLock::new(|| {
    ENTRIES
        .iter()
        .flat_map(|(label, tongue, phrases)| {
            phrases.iter().map(|phrase| (*phrase, (*label, *tongue)))
        })
        .collect()
});

/// What a folded phrase announces.
pub(super) fn label(phrase: &str) -> Option<(Label, Tongue)> {
    PHRASES.get(phrase).copied()
}

use Tongue::{Any, DayFirst, English};

#[rustfmt::skip]
const ENTRIES: &[Entry] = &[
    (Label::Number, English, &[
        "invoice number", "invoice no", "invoice nr", "invoice num", "invoice #", "invoice id", "inv no", "inv number",
        "inv #", "tax invoice number", "tax invoice no", "tax invoice #", "vat invoice number", "vat invoice no", "bill no",
        "bill number", "credit note number", "credit note no", "number of invoice", "our invoice number", "our invoice no",
    ]),
    (Label::Number, DayFirst, &[
        "rechnungsnummer", "rechnungs nr", "rechnungsnr", "rechnung nr", "rechnungs nummer", "rechnung nummer", "re nr", "rg nr",
        "numero de facture", "numero de la facture", "n de facture", "no de facture", "facture n", "facture no", "facture numero",
        "n facture", "num facture", "facture nr", "facture #", "factuurnummer", "factuur nummer", "factuurnr", "factuur nr",
        "factuur no", "numero fattura", "numero della fattura", "fattura n", "fattura nr", "fattura numero", "fattura no", "n fattura",
        "nr fattura", "numero de factura", "n de factura", "no de factura", "factura n", "factura no", "factura numero", "factura nro",
        "nro de factura", "num factura", "n factura", "numero factura", "faktura nr", "faktura vat nr", "nr faktury", "numer faktury",
        "faktura numer", "faktura n", "nr faktury vat", "numero da fatura", "fatura n", "fatura no", "n da fatura",
    ]),
    (Label::Title, English, &["invoice", "tax invoice", "vat invoice", "sales invoice", "credit note", "commercial invoice"]),
    (Label::Title, DayFirst, &[
        "rechnung", "facture", "factuur", "fattura", "factura", "faktura", "faktura vat", "fatura", "gutschrift", "creditnota", "avoir",
    ]),
    (Label::Date, English, &[
        "invoice date", "date of invoice", "date of issue", "issue date", "date issued", "invoice issue date", "invoiced on", "issued on",
        "invoice dated", "bill date", "tax invoice date", "issued",
    ]),
    (Label::Date, DayFirst, &[
        "rechnungsdatum", "rechnungs datum", "datum der rechnung", "ausstellungsdatum", "date de facture", "date de la facture",
        "date facture", "date d emission", "date de facturation", "facture du", "factuurdatum", "factuur datum", "datum factuur",
        "data fattura", "data della fattura", "data di emissione", "data emissione", "fattura del", "fecha de factura",
        "fecha de la factura", "fecha factura", "fecha de emision", "fecha emision", "fecha de expedicion", "data wystawienia",
        "data faktury", "wystawiono dnia", "data wystawienia faktury", "data da fatura", "data de emissao",
    ]),
    (Label::AnyDate, Any, &["date"]),
    (Label::AnyDate, English, &["dated"]),
    (Label::AnyDate, DayFirst, &["datum", "data", "fecha"]),
    (Label::Due, English, &[
        "due date", "payment due", "payment due date", "due on", "due by", "pay by", "payment due by", "payment due on", "date due",
        "due", "payable by", "invoice due date", "please pay by", "payment date due", "date payment due",
    ]),
    (Label::Due, DayFirst, &[
        "falligkeitsdatum", "fallig am", "fallig", "zahlbar bis", "zahlungsziel", "falligkeit", "zu zahlen bis", "faelligkeitsdatum",
        "faellig am", "date d echeance", "echeance", "date limite de paiement", "a payer avant le", "date echeance",
        "date limite de reglement", "payable avant le", "vervaldatum", "verval datum", "te betalen voor",
        "uiterste betaaldatum", "betalen voor", "vervaldag", "betaaldatum uiterlijk", "scadenza", "data scadenza", "data di scadenza",
        "scadenza pagamento", "vencimiento", "fecha de vencimiento", "fecha vencimiento", "fecha limite de pago", "termin platnosci",
        "termin zaplaty", "platne do", "data de vencimento", "vencimento", "data platnosci",
    ]),
    (Label::Total, English, &[
        "grand total", "gross", "invoice total", "total invoice", "total invoice amount", "total invoice value", "invoice amount",
        "total including vat", "total incl vat", "total inc vat", "total incl tax", "total inc tax", "total including tax",
        "total with tax", "total gross", "gross total", "gross amount", "total for this invoice", "total inclusive of vat",
        "total inc gst", "total incl gst", "total including gst", "amount including vat", "total gross amount", "total with vat",
    ]),
    (Label::Total, DayFirst, &[
        "gesamtbetrag", "rechnungsbetrag", "rechnungssumme", "endbetrag", "bruttobetrag", "gesamtsumme brutto", "summe brutto",
        "gesamt brutto", "rechnungsendbetrag", "rechnungsgesamtbetrag", "gesamtbetrag brutto", "brutto", "bruttosumme",
        "gesamtbetrag inkl mwst", "gesamt inkl mwst", "summe inkl mwst", "total inkl mwst", "total ttc", "montant ttc",
        "total facture", "montant total ttc", "total general", "total toutes taxes comprises", "montant eur ttc",
        "total a payer ttc", "net a payer ttc", "prix ttc", "ttc", "totaal inclusief btw", "totaal incl btw", "factuurtotaal",
        "factuur totaal", "factuurbedrag", "totaalbedrag incl btw", "totaalbedrag inclusief btw", "totaal factuur",
        "bedrag incl btw", "inclusief btw", "totale fattura", "totale documento", "importo totale", "totale ivato",
        "totale iva inclusa", "totale generale", "totale complessivo", "importe total", "total factura", "total con iva",
        "total iva incluido", "importe factura", "total importe", "naleznosc ogolem", "razem brutto", "wartosc brutto",
        "kwota brutto", "suma brutto", "ogolem brutto", "total com iva", "total da fatura", "totale factuur",
    ]),
    (Label::AnyTotal, Any, &["total"]),
    (Label::AnyTotal, English, &[
        "total amount", "total due", "amount due", "total amount due", "balance due", "amount payable", "total payable",
        "total to pay", "amount to pay", "outstanding balance", "please pay", "total price", "order total",
        "total amount payable", "invoice balance",
    ]),
    (Label::AnyTotal, DayFirst, &[
        "gesamt", "summe", "gesamtsumme", "gesamtpreis", "zu zahlen", "zahlbetrag", "zu zahlender betrag", "endsumme",
        "net a payer", "montant total", "somme a payer", "total a payer", "montant a payer", "reste a payer", "solde a payer",
        "montant du", "totaal", "te betalen", "totaalbedrag", "totaal te betalen", "te voldoen", "totale", "totale da pagare",
        "da pagare", "netto a pagare", "total a pagar", "importe a pagar", "razem", "do zaplaty", "ogolem", "razem do zaplaty",
        "suma", "kwota do zaplaty", "pozostalo do zaplaty", "valor total", "valor a pagar",
    ]),
    (Label::Net, English, &[
        "net amount", "net total", "total net", "total excluding vat", "total excl vat", "total ex vat", "total exc vat",
        "total before tax", "total excluding tax", "total excl tax", "taxable amount", "subtotal excl vat", "net",
        "amount excluding vat", "subtotal excluding vat", "net value", "taxable value", "total net amount", "total without vat",
        "subtotal before tax", "sub total before tax", "total ex gst", "total excl gst",
    ]),
    (Label::Net, DayFirst, &[
        "nettobetrag", "summe netto", "netto", "gesamt netto", "nettosumme", "netto summe", "gesamtbetrag netto", "netto betrag",
        "zwischensumme netto", "nettowert", "summe ohne mwst", "total ht", "montant ht", "total hors taxes", "montant total ht",
        "montant hors taxes", "montant eur ht", "base ht", "total net ht", "exclusief btw", "totaal excl btw",
        "totaal exclusief btw", "excl btw", "bedrag excl btw", "grondslag", "subtotaal excl btw", "subtotaal exclusief btw",
        "maatstaf van heffing", "totaalbedrag excl btw", "imponibile", "totale imponibile", "totale netto", "base imponible",
        "total sin iva", "total base imponible", "importe neto", "wartosc netto", "razem netto", "kwota netto", "suma netto",
        "base tributavel", "total sem iva", "total iliquido",
    ]),
    (Label::AnyNet, Any, &["subtotal"]),
    (Label::AnyNet, English, &["sub total"]),
    (Label::AnyNet, DayFirst, &["zwischensumme", "sous total", "subtotaal", "sub totaal", "subtotale", "suma czesciowa"]),
    (Label::Tax, Any, &["vat"]),
    (Label::Tax, English, &[
        "tax", "sales tax", "vat amount", "tax amount", "total tax", "total vat", "plus vat", "gst", "gst amount",
        "total vat amount", "total tax amount", "total gst", "amount of vat",
    ]),
    (Label::Tax, DayFirst, &[
        "mwst", "ust", "umsatzsteuer", "mehrwertsteuer", "zzgl mwst", "zzgl ust", "mwst betrag", "ust betrag", "steuerbetrag",
        "zuzuglich mwst", "zzgl umsatzsteuer", "zzgl mehrwertsteuer", "steuer", "gesamt mwst", "tva", "montant tva", "total tva",
        "montant de la tva", "dont tva", "btw", "btw bedrag", "totaal btw", "btwbedrag", "iva", "totale iva", "importo iva", "imposta",
        "totale imposta", "cuota iva", "importe iva", "total iva", "cuota", "kwota vat", "podatek vat", "razem vat", "suma vat",
    ]),
    (Label::Vat(None), English, &[
        "vat number", "vat no", "vat nr", "vat id", "vat reg no", "vat registration number", "vat registration no", "vat reg",
        "vat registration", "vat id no", "vat identification number", "vat code", "tax id", "our vat number", "vat #", "eu vat",
        "vat registered number", "vat reg number", "vat tin", "tax registration number",
    ]),
    (Label::Vat(None), DayFirst, &[
        "ust id", "ust idnr", "ust id nr", "umsatzsteuer id", "umsatzsteuer identifikationsnummer", "ustid", "ustidnr", "uid", "uid nr",
        "umsatzsteuer idnr", "ust ident nr", "ust identnr", "umsatzsteuer id nr", "mwst nr", "mwst nummer", "uid nummer",
        "tva intracommunautaire", "numero de tva", "n de tva", "n tva", "no tva", "numero tva", "tva intracom", "tva intra",
        "n tva intracommunautaire", "n de tva intracommunautaire", "n de tva intra communautaire", "tva intra communautaire",
        "numero de tva intracommunautaire", "id tva", "num tva", "nip ue", "nr vat", "vat ue",
    ]),
    (Label::Vat(Some("NL")), DayFirst, &["btw nummer", "btw nr", "btwnummer", "btw id", "btw identificatienummer", "btw no", "btwnr"]),
    (Label::Vat(Some("PL")), DayFirst, &["nip", "nr nip", "numer nip"]),
    (Label::Vat(Some("IT")), DayFirst, &["p iva", "partita iva", "piva", "part iva", "p i", "p iva c f", "c f p iva"]),
    (Label::Vat(Some("ES")), DayFirst, &["nif", "cif", "n i f", "c i f", "nif iva", "cif nif", "nif cif"]),
    (Label::Vat(Some("PT")), DayFirst, &["nipc", "contribuinte", "contribuinte n"]),
    (Label::BuyerVat, English, &[
        "your vat", "your vat number", "your vat no", "your vat id", "customer vat", "customer vat number", "customer vat no",
        "customer vat id", "client vat", "client vat number", "buyer vat", "buyer vat number", "vat number customer",
    ]),
    (Label::BuyerVat, DayFirst, &[
        "ihre ust id", "ihre ust idnr", "ihre ust id nr", "ihre ustid", "ihre uid", "ihre uid nummer", "kunden ust id", "kunden uid",
        "ihre umsatzsteuer id", "ust idnr kunde", "ust id kunde", "votre tva", "votre n tva", "votre n de tva", "votre numero de tva",
        "votre tva intracommunautaire", "tva client", "n tva client", "uw btw nummer", "uw btw nr", "uw btw", "uw btw id", "btw nummer klant",
        "p iva cliente", "vostra p iva", "partita iva cliente", "nif cliente", "cif cliente", "su nif", "su cif", "nip nabywcy",
        "nip klienta",
    ]),
    (Label::Iban, Any, &["iban", "iban nr", "iban no", "iban number", "iban code", "iban nummer", "iban rekening", "code iban"]),
    (Label::Bic, Any, &[
        "bic", "swift", "bic swift", "swift bic", "swift code", "bic code", "swift bic code", "bic swift code", "swift no", "kod bic",
        "kod swift", "code bic", "code swift", "bic nr", "kod bic swift",
    ]),
    (Label::Currency, English, &["currency", "invoice currency", "currency code"]),
    (Label::Currency, DayFirst, &["wahrung", "devise", "monnaie", "valuta", "moneda", "divisa", "waluta", "moeda"]),
    (Label::Seller, English, &[
        "sold by", "seller", "supplier", "vendor", "issued by", "service provider", "from", "bill from", "supplier name", "seller name",
        "vendor name", "invoice from", "issuer", "supplied by",
    ]),
    (Label::Seller, DayFirst, &[
        "verkaufer", "lieferant", "rechnungssteller", "leistungserbringer", "aussteller", "vendeur", "fournisseur", "emetteur",
        "prestataire", "leverancier", "verkoper", "afzender", "fornitore", "cedente", "venditore", "cedente prestatore", "mittente",
        "proveedor", "vendedor", "emisor", "sprzedawca", "wystawca", "dostawca", "fornecedor", "emitente", "sprzedajacy",
    ]),
    (Label::Buyer, Any, &["client"]),
    (Label::Buyer, English, &[
        "bill to", "billed to", "billing address", "bill to address", "ship to", "shipping address", "sold to", "invoice to", "customer",
        "buyer", "deliver to", "delivery address", "invoice address", "ship to address", "customer name", "customer details",
        "recipient", "purchaser", "consignee", "attn", "prepared for", "bill to party", "invoiced to", "delivered to", "for the attention of",
    ]),
    (Label::Buyer, DayFirst, &[
        "rechnungsadresse", "lieferadresse", "kunde", "rechnungsempfanger", "empfanger", "rechnung an", "lieferanschrift",
        "rechnungsanschrift", "leistungsempfanger", "kaufer", "besteller", "auftraggeber", "adresse de facturation",
        "adresse de livraison", "facture a", "livre a", "adresse de l installation", "nom de l abonne", "acheteur", "destinataire",
        "factuuradres", "afleveradres", "klant", "bezorgadres", "verzendadres", "koper", "afnemer", "factuur aan", "t a v", "opdrachtgever",
        "cliente", "destinatario", "acquirente", "cessionario", "cessionario committente", "spett le", "spettabile", "intestatario",
        "indirizzo di fatturazione", "indirizzo di spedizione", "direccion de facturacion", "direccion de envio", "facturar a",
        "comprador", "enviar a", "datos del cliente", "nabywca", "odbiorca", "kupujacy", "adres dostawy", "platnik", "zamawiajacy",
        "morada de faturacao",
    ]),
    (Label::Register, English, &[
        "registered office", "regd office", "company number", "company no", "company registration", "registered in england",
        "registration number", "company reg no", "company registration number", "cin", "reg no", "ein", "abn", "registered company",
        "registered number", "company reg",
    ]),
    (Label::Register, DayFirst, &[
        "hrb", "hra", "handelsregister", "amtsgericht", "geschaftsfuhrer", "registergericht", "firmenbuchnummer", "fn", "rcs", "siret",
        "siren", "au capital de", "au capital social de", "capital social", "siege social", "ape", "naf", "kvk", "kvk nr", "kvk nummer",
        "handelsregisternummer", "kamer van koophandel", "rpr", "rea", "cap soc", "capitale sociale", "sede legale", "registro imprese",
        "registro mercantil", "inscrita en", "domicilio social", "krs", "regon", "kapital zakladowy", "sad rejonowy", "org nr", "orgnr",
        "y tunnus", "kapitalizace", "conservatoria", "sitz der gesellschaft", "vorstand", "aufsichtsrat", "inhaber", "bdo",
    ]),
    (Label::Other, Any, &[
        "tel", "fax", "page", "description", "reference", "bank", "item", "e mail", "email", "website", "discount", "paid", "mobile", "telephone", "period",
    ]),
    (Label::Other, English, &[
        "order number", "order no", "order id", "order date", "order #", "po number", "po no", "purchase order", "purchase order number",
        "customer number", "customer no", "customer id", "account number", "account no", "phone", 
        "delivery date", "ship date", "shipping date", "delivery note", "date of supply", "supply date", "tax point", "tax point date",
        "date of birth", "print date", "billing period", "your reference", "our reference", "payment terms",
        "terms", "quantity", "qty", "unit price", "price", "shipping", "rate", "amount paid", 
        "original invoice number", "original invoice no", "original invoice", "original invoice date", "vat rate", "tax rate", 
        "sort code", "net weight", "gross weight", "total weight", "total quantity", "total items", "total hours", "total qty",
        "net 30 days", "net days", "total discount", "total savings", "total paid", "payment date", "previous balance",
        "quote number", "invoice summary", "amount", "registration date", "service tax",
    ]),
    (Label::Other, DayFirst, &[
        "bestellnummer", "bestell nr", "bestelldatum", "auftragsnummer", "auftrags nr", "auftragsdatum", "kundennummer", "kunden nr",
        "kundennr", "telefon", "lieferdatum", "leistungsdatum", "lieferschein", "lieferscheinnummer", "leistungszeitraum", "zeitraum",
        "seite", "menge", "einzelpreis", "bezeichnung", "steuernummer", "steuer nr", "st nr", "skonto", "bankverbindung", "blz", "konto",
        "kontonummer", "bic bank", "numero de commande", "n de commande", "date de commande", "date de livraison", "n client",
        "numero client", "numero de client", "id client", "code client", "reference client", "numero de ligne", "periode",
        "quantite", "prix unitaire", "ordernummer", "orderdatum", "klantnummer", "bestelnummer", "leverdatum", "telefoon", "aantal", "prijs",
        "omschrijving", "btw tarief", "pagina", "artikel", "bedrag", "betrag", "numero ordine", "data ordine", "codice cliente", "data di consegna",
        "telefono", "codice fiscale", "quantita", "prezzo", "numero de pedido", "fecha de pedido", "numero de cliente", "fecha de entrega",
        "cantidad", "precio", "numer zamowienia", "nr zamowienia", "data zamowienia", "data sprzedazy", "data dostawy", "ilosc", "cena",
        "stawka vat", "numer klienta", "nr klienta", "tel kom", "nr konta", "rachunek", "zaplacono", "wartosc", "data de entrega",
        "dane do przelewu", "mwst satz", "taux tva", "taux de tva", "aliquota", "aliquota iva", "tipo iva",
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::sheet::fold;

    #[test]
    fn every_phrase_can_be_met_and_means_one_thing() {
        let mut seen = HashMap::new();
        for (label, _, phrases) in ENTRIES {
            for phrase in *phrases {
                let words = fold(phrase);
                let met: Vec<&str> = words.iter().map(|word| word.folded.as_str()).collect();
                assert_eq!(met.join(" "), *phrase);
                assert!(words.len() <= PHRASE_WORDS_MAX, "{phrase}");
                let before = seen.insert(*phrase, *label);
                assert!(before.is_none(), "{phrase}: {before:?} and {label:?}");
            }
        }
    }
}
