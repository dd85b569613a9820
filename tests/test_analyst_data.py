"""The analyst's data: reading CSV files, and SQL that can read and do nothing else."""

import csv
import gc
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.analyst.csv_file import DataError
from examples.analyst.tables import ColumnSummary, QueryError, Rows, Table

DATA = Path(__file__).parent.parent / "examples" / "analyst" / "data"


@pytest.fixture
def sales(tmp_path: Path) -> Table:
    return table(tmp_path, "region,amount\nnorth,10\nsouth,20\nnorth,\n")


def write(folder: Path, content: str | bytes, name: str = "sales.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(folder: Path, content: str, name: str = "sales.csv") -> Table:
    return Table.from_csv(write(folder, content, name))


def refused(error: type[Exception], ask: Callable[[], object]) -> str:
    """Return what is said when this is refused."""
    with pytest.raises(error) as found:
        ask()
    return str(found.value)


def test_the_bundled_data_is_the_published_file_byte_for_byte() -> None:
    data = (DATA / "birdstrikes.csv").read_bytes()
    digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    assert digest == "e4af3575d2458885025e4c8a40a9fa3e6851933a"
    licence = (DATA / "LICENSE.md").read_text(encoding="utf-8")
    assert digest in licence
    assert f"{len(data):,} bytes" in licence
    assert "public domain" in licence


def test_every_row_of_the_bundled_data_is_in_the_table() -> None:
    with (DATA / "birdstrikes.csv").open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    strikes = Table.from_csv(DATA / "birdstrikes.csv")
    speeds = [int(record["Speed IAS in knots"]) for record in records if record["Speed IAS in knots"]]
    assert strikes.n_rows == len(records) == 10_000
    costs = [int(record["Cost Total $"]) for record in records]
    phases = [record["Phase of flight"] for record in records]
    assert strikes.number('SELECT SUM("Cost Total $") FROM birdstrikes') == sum(costs)
    assert strikes.number('SELECT AVG("Speed IAS in knots") FROM birdstrikes') == sum(speeds) / len(speeds)
    assert strikes.count("Phase of flight", "Approach") == phases.count("Approach")


def test_columns_get_the_narrowest_kind_that_every_value_fits(tmp_path: Path) -> None:
    loaded = table(
        tmp_path,
        "count,price,day,us day,zip,code,note,nothing\n"
        "1,1.5,2024-01-31,1/31/2024,00123,123456789012345678901,x,\n"
        "-2,1e3,2024-02-01 10:00,12/1/2024,99999,2,,\n",
    )
    assert loaded.kinds == {
        **{"count": "integer", "price": "number", "day": "date", "us day": "date"},
        **dict.fromkeys(("zip", "code", "note", "nothing"), "text"),
    }
    assert loaded.query("SELECT * FROM sales").rows == [
        [1, 1.5, "2024-01-31", "1/31/2024", "00123", "123456789012345678901", "x", None],
        [-2, 1000.0, "2024-02-01 10:00", "12/1/2024", "99999", "2", None, None],
    ]


def test_column_names_are_tidied_and_always_usable(tmp_path: Path) -> None:
    loaded = table(tmp_path, '\ufeff" a\n\tb ","say ""hi""",,select\n1,2,3,4\n', "Q1 Sales, final.csv")
    assert list(loaded.kinds) == ["a b", "say hi", "column 3", "select"]
    assert loaded.query('SELECT "a b", "say hi", "column 3", "select" FROM q1_sales_final').rows == [[1, 2, 3, 4]]


def test_a_file_with_a_name_that_sqlite_keeps_for_itself_gets_another(tmp_path: Path) -> None:
    assert table(tmp_path, "a,b\n1,2\n", "sqlite_master.csv").name == "data_sqlite_master"


def test_blank_lines_and_quoted_line_breaks_are_no_rows(tmp_path: Path) -> None:
    loaded = table(tmp_path, 'a,b\r\n\r\n"x\ny",1\r\n\r\n')
    assert (loaded.n_rows, loaded.query("SELECT a FROM sales").rows) == (1, [["x\ny"]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty. Give a CSV file with a header and at least one row."),
        (" \n\n", "is empty. Give a CSV file with a header and at least one row."),
        ("a,b\n", "has a header and no rows. Give a CSV file with at least one row of data."),
        ("a\n1\n", "has one column only. Give a table with two columns or more, separated by commas."),
        ("a;b\n1;2\n", "has one column only. Its fields seem to be separated by semicolons: save it with commas."),
        ("a\tb\n1\t2\n", "has one column only. Its fields seem to be separated by tabs: save it with commas."),
        ("a,b,A\n1,2,3\n", "has two columns named 'A'. Rename one of them in the first line."),
        ("a,b\n1,2\n1,2,3\n", "has 2 columns, but 3 fields in line 3. Put fields that hold commas in double quotes."),
        ("a,b\n1,2\n1\n", "has 2 columns, but 1 field in line 3. Put fields that hold commas in double quotes."),
        ('a,b\n1,"2\n3,4\n', "is no CSV from line 3 on (unexpected end of data). Check the quotes there."),
        (",".join(map(str, range(201))), "has 201 columns, more than 200. Leave out those you do not need."),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, content)
    assert refused(DataError, lambda: Table.from_csv(path)) == f"{path} {message}"


@pytest.mark.parametrize(
    ("content", "offset", "encoding"),
    [("name,town\nAnn,Köln\n".encode("latin-1"), 15, "windows-1252"), ("a,b\n1,2\n".encode("utf-16"), 0, "utf-16")],
)
def test_a_file_that_is_not_utf_8_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, content: bytes, offset: int, encoding: str
) -> None:
    path = write(tmp_path, content)
    assert refused(DataError, lambda: Table.from_csv(path)) == (
        f"{path} is not UTF-8: byte 0x{content[offset]:02x} at offset {offset}. "
        f"Convert it, for example: iconv -f {encoding} -t utf-8 {path} > converted.csv"
    )


def test_a_missing_file_and_a_folder_are_refused_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv does not exist\. Check the path"):
        Table.from_csv(tmp_path / "gone.csv")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)\. Give a CSV file"):
        Table.from_csv(tmp_path)


def test_a_file_without_end_is_refused_without_reading_all_of_it() -> None:
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("needs /dev/zero")
    with pytest.raises(DataError, match="is larger than 50 MB"):
        Table.from_csv(endless)


def test_the_database_is_deleted_with_its_table(tmp_path: Path) -> None:
    loaded = table(tmp_path, "a,b\n1,2\n")
    database = loaded.database
    assert database.exists()
    del loaded
    gc.collect()
    assert not database.exists()


def test_a_description_tells_what_is_in_each_column(sales: Table) -> None:
    description = sales.describe()
    assert (description.table, description.rows) == ("sales", 3)
    assert description.columns == [
        ColumnSummary("region", "text", 2, 0, "north", "south", ["north", "south"]),
        ColumnSummary("amount", "integer", 2, 1, 10, 20, [10, 20]),
    ]


def test_a_description_cuts_long_texts(tmp_path: Path) -> None:
    (column, _) = table(tmp_path, f"a,b\n{'x' * 30_000},1\n").describe().columns
    assert (column.smallest, column.frequent) == ("x" * 200, ["x" * 200])


def test_a_query_gives_columns_and_rows(sales: Table) -> None:
    sql = 'SELECT region, SUM(amount) AS "total amount" FROM sales GROUP BY 1 ORDER BY "total amount" DESC'
    assert sales.query(sql) == Rows(["region", "total amount"], [["south", 20], ["north", 10]])


def test_a_query_says_when_it_leaves_rows_out(tmp_path: Path) -> None:
    many = table(tmp_path, "n,m\n" + "1,2\n" * 201)
    cut = many.query("SELECT * FROM sales")
    assert (len(cut.rows), cut.note) == (200, "Only the first 200 rows are shown. Aggregate, filter or use LIMIT.")
    assert many.query("SELECT * FROM sales LIMIT 200").note == ""


def test_a_query_gives_fewer_rows_where_they_are_long(tmp_path: Path) -> None:
    long = table(tmp_path, "n,m\n" + f"{'x' * 9_999},1\n" * 10)
    lengths = [len(long.query(f"SELECT {what} FROM sales").rows) for what in ("*", "m")]
    assert lengths == [4, 10]


def test_values_that_json_cannot_hold_come_as_words(sales: Table) -> None:
    assert sales.query("SELECT x'00ff', 9e999, NULL").rows == [["(2 bytes)", "inf", None]]


def test_a_number_is_one_row_with_one_number(sales: Table) -> None:
    assert sales.number("SELECT AVG(amount) FROM sales") == 15.0
    for sql, given in [
        ("SELECT amount FROM sales WHERE amount > 0", "2 rows, beginning [[10]]"),
        ("SELECT region FROM sales LIMIT 1", "1 rows, beginning [['north']]"),
        ("SELECT SUM(amount) FROM sales WHERE amount > 99", "1 rows, beginning [[None]]"),
    ]:
        message = refused(QueryError, lambda sql=sql: sales.number(sql))
        assert message == f"It gives {given}, not one row with one number."


def test_rows_are_counted_by_the_text_of_a_value_and_by_empty(sales: Table) -> None:
    assert [sales.count("amount", value) for value in ("10", None, "x' OR 1")] == [1, 1, 0]


COLUMNS = 'The table is "sales", its columns are "region", "amount".'


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT profit FROM sales", f"no such column: profit. {COLUMNS}"),
        ('SELECT "profit" FROM sales', f'no such column: "profit". Texts take single quotes. {COLUMNS}'),
        ("SELECT region FROM sale", f"no such table: sale. {COLUMNS}"),
        ("SELEC region", f'near "SELEC": syntax error. {COLUMNS}'),
        ("SELECT 1; SELECT 2", f"You can only execute one statement at a time. {COLUMNS}"),
        ("-- nothing", "That is no query. Write one SELECT statement."),
        ("SELECT hex(zeroblob(400000))", "A value has 800,000 characters. Use substr() or length() on it."),
    ],
)
def test_a_wrong_query_is_refused_with_what_mends_it(sales: Table, sql: str, message: str) -> None:
    assert refused(QueryError, lambda: sales.query(sql)) == message


def test_double_quotes_in_texts_and_comments_are_no_names(sales: Table) -> None:
    sql = """SELECT 'say "hi"' AS "x y", "REGION" FROM "sales" -- "gone" /* "too" */"""
    assert sales.query(f"{sql}\nWHERE \"x y\" <> 'it''s \"' LIMIT 1").rows == [['say "hi"', "north"]]


@pytest.mark.parametrize(
    "sql",
    [
        *("INSERT INTO sales VALUES ('x', 1)", "INSERT INTO sales VALUES ('x', 1) RETURNING *"),
        *("UPDATE sales SET amount = 0", "DELETE FROM sales", "DROP TABLE sales", "CREATE TABLE other (a)"),
        *("CREATE TEMP TABLE other (a)", "WITH gone AS (SELECT 1) DELETE FROM sales"),
        *("ATTACH 'other.sqlite' AS other", "VACUUM INTO 'copy.sqlite'", "PRAGMA query_only = OFF"),
        *("PRAGMA table_info(sales)", "SELECT * FROM pragma_table_info('sales')", "BEGIN", "ANALYZE"),
        *("SELECT load_extension('evil')", "SELECT readfile('/etc/hostname')", "SELECT writefile('evil', 'x')"),
        *("SELECT fts3_tokenizer('simple')", "SELECT 1; DROP TABLE sales", "SELECT length(randomblob(1000000000))"),
        *("SELECT length(zeroblob(1000000000))", "SELECT replace(hex(zeroblob(240000)), '0', 'aaaaaaaa')"),
        *("SELECT 'x' LIKE '" + "%a" * 200 + "'", "SELECT " + "(" * 5_000 + "1" + ")" * 5_000),
        *("SELECT '" + "x" * 20_000 + "'", "SELECT 'a\0b'", "SELECT '\ud800'", "SELECT CAST(x'ff' AS TEXT)"),
    ],
)
def test_what_is_not_a_harmless_read_is_refused_and_changes_nothing(sales: Table, sql: str) -> None:
    before = sales.database.read_bytes()
    with pytest.raises(QueryError):
        sales.query(sql)
    assert sales.database.read_bytes() == before
    assert sales.number("SELECT COUNT(*) FROM sales") == 3


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE bomb(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM bomb) SELECT COUNT(*) FROM bomb",
        "WITH RECURSIVE bomb(x) AS (SELECT zeroblob(9e5) UNION ALL SELECT zeroblob(9e5) FROM bomb) SELECT 1 FROM bomb"
        " ORDER BY x",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000)"
        " SELECT COUNT(DISTINCT a.x * b.x) FROM n AS a, n AS b",
    ],
)
def test_a_query_that_takes_too_long_is_stopped(sales: Table, sql: str) -> None:
    with pytest.raises(QueryError, match=r"took longer than 0\.2 s and was stopped\. Aggregate or filter first"):
        sales.query(sql, max_seconds=0.2)


def test_a_million_rows_cost_as_little_as_the_few_that_are_shown(sales: Table) -> None:
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000000)"
    rows = sales.query(f"{numbers} SELECT x FROM n")
    assert (rows.rows[-1], bool(rows.note)) == ([200], True)
