// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tpcc - an order-entry database in memory, by the H2 engine
 *
 *   java -cp h2.jar Tpcc DISTRICTS TRANSACTIONS SEED
 *
 * The tables and the mix of transactions are like those of TPC-C, with fewer
 * rows: new orders, payments, deliveries, a customer's last order, stock levels.
 * At the end the consistency conditions of TPC-C (3.3.2) have to hold. Prints
 * "ok" and a sum, which depends on the arguments only.
 */
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;

public final class Tpcc {
    private static final int CUSTOMERS = 300; // of a district
    private static final int ITEMS = 4000;

    private final Connection db;
    private final SplittableRandom random;
    private final int districts;
    private final Map<String, PreparedStatement> prepared = new HashMap<>();

    private Tpcc(Connection db, int districts, long seed) {
        this.db = db;
        this.districts = districts;
        random = new SplittableRandom(seed);
    }

    private PreparedStatement bind(String sql, Object... values) throws SQLException {
        PreparedStatement statement = prepared.get(sql);
        if (statement == null) {
            statement = db.prepareStatement(sql);
            prepared.put(sql, statement);
        }
        for (int i = 0; i < values.length; i++) {
            statement.setObject(i + 1, values[i]);
        }
        return statement;
    }

    private void change(String sql, Object... values) throws SQLException {
        bind(sql, values).executeUpdate();
    }

    private long ask(String sql, Object... values) throws SQLException {
        try (ResultSet found = bind(sql, values).executeQuery()) {
            return found.next() ? found.getLong(1) : 0;
        }
    }

    private String text(int length) {
        StringBuilder text = new StringBuilder(length);
        for (int i = 0; i < length; i++) {
            text.append((char) ('a' + random.nextInt(26)));
        }
        return text.toString();
    }

    private void create() throws SQLException {
        try (Statement statement = db.createStatement()) {
            for (String table : new String[] {
                "warehouse (id int primary key, ytd bigint)",
                "district (id int primary key, ytd bigint, next_order int)",
                "customer (d int, id int, name varchar, data varchar, balance bigint, paid bigint,"
                        + " payments int, primary key (d, id))",
                "item (id int primary key, name varchar, price int)",
                "stock (item int primary key, quantity int, sold bigint, data varchar)",
                "orders (d int, id int, customer int, carrier int, lines int, primary key (d, id))",
                "new_order (d int, id int, primary key (d, id))",
                "order_line (d int, o int, line int, item int, quantity int, amount bigint,"
                        + " info varchar, primary key (d, o, line))",
                "history (d int, customer int, amount bigint, data varchar)",
            }) {
                statement.execute("create table " + table);
            }
            statement.execute("create index last_order on orders (d, customer, id)");
        }
        change("insert into warehouse values (1, 0)");
        for (int item = 1; item <= ITEMS; item++) {
            change("insert into item values (?, ?, ?)", item, text(20), 100 + random.nextInt(9900));
            change("insert into stock values (?, ?, 0, ?)", item, 50 + random.nextInt(50), text(50));
        }
        for (int d = 1; d <= districts; d++) {
            change("insert into district values (?, 0, 1)", d);
            for (int c = 1; c <= CUSTOMERS; c++) {
                change("insert into customer values (?, ?, ?, ?, 0, 0, 0)", d, c, text(16), text(300));
            }
        }
        db.commit();
    }

    private void order() throws SQLException {
        int d = 1 + random.nextInt(districts), customer = 1 + random.nextInt(CUSTOMERS);
        int lines = 5 + random.nextInt(11);
        int id = (int) ask("select next_order from district where id = ?", d);
        change("update district set next_order = ? where id = ?", id + 1, d);
        change("insert into orders values (?, ?, ?, null, ?)", d, id, customer, lines);
        change("insert into new_order values (?, ?)", d, id);
        for (int line = 1; line <= lines; line++) {
            // Some items are sold more often than others.
            int item = 1 + Math.min(random.nextInt(ITEMS), random.nextInt(ITEMS));
            int quantity = 1 + random.nextInt(10);
            long price = ask("select price from item where id = ?", item);
            long left = ask("select quantity from stock where item = ?", item) - quantity;
            change("update stock set quantity = ?, sold = sold + ? where item = ?",
                    left < 10 ? left + 91 : left, quantity, item);
            change("insert into order_line values (?, ?, ?, ?, ?, ?, ?)",
                    d, id, line, item, quantity, price * quantity, text(24));
        }
        if (random.nextInt(100) == 0) {
            db.rollback(); // a customer that changes his mind
        } else {
            db.commit();
        }
    }

    private void pay() throws SQLException {
        int d = 1 + random.nextInt(districts), customer = 1 + random.nextInt(CUSTOMERS);
        long amount = 100 + random.nextInt(500_000);
        change("update warehouse set ytd = ytd + ? where id = 1", amount);
        change("update district set ytd = ytd + ? where id = ?", amount, d);
        change("update customer set balance = balance - ?, paid = paid + ?, payments = payments + 1"
                + " where d = ? and id = ?", amount, amount, d, customer);
        change("insert into history values (?, ?, ?, ?)", d, customer, amount, text(24));
        db.commit();
    }

    private void deliver() throws SQLException {
        for (int d = 1; d <= districts; d++) {
            int id = (int) ask("select min(id) from new_order where d = ?", d);
            if (id == 0) {
                continue;
            }
            long amount = ask("select sum(amount) from order_line where d = ? and o = ?", d, id);
            long customer = ask("select customer from orders where d = ? and id = ?", d, id);
            change("delete from new_order where d = ? and id = ?", d, id);
            change("update orders set carrier = ? where d = ? and id = ?", 1 + random.nextInt(10), d, id);
            change("update customer set balance = balance + ? where d = ? and id = ?", amount, d, customer);
        }
        db.commit();
    }

    private long look() throws SQLException {
        int d = 1 + random.nextInt(districts), customer = 1 + random.nextInt(CUSTOMERS);
        long last = ask("select max(id) from orders where d = ? and customer = ?", d, customer);
        return ask("select sum(amount) from order_line where d = ? and o = ?", d, last);
    }

    private long stock() throws SQLException {
        int d = 1 + random.nextInt(districts);
        long next = ask("select next_order from district where id = ?", d);
        return ask("select count(distinct s.item) from order_line l join stock s on s.item = l.item"
                + " where l.d = ? and l.o >= ? and s.quantity < ?", d, next - 20, 10 + random.nextInt(11));
    }

    private void same(String what, long a, long b) {
        if (a != b) {
            throw new AssertionError(what + ": " + a + " and " + b);
        }
    }

    private void check() throws SQLException {
        same("payments of the warehouse and its districts",
                ask("select ytd from warehouse"), ask("select sum(ytd) from district"));
        same("payments and their history",
                ask("select ytd from warehouse"), ask("select sum(amount) from history"));
        for (int d = 1; d <= districts; d++) {
            long next = ask("select next_order from district where id = ?", d);
            same("the last order of " + d, next - 1, ask("select max(id) from orders where d = ?", d));
            long open = ask("select count(*) from new_order where d = ?", d);
            if (open > 0) {
                same("open orders of " + d, open, ask("select max(id) - min(id) + 1 from new_order where d = ?", d));
            }
            same("lines of " + d, ask("select sum(lines) from orders where d = ?", d),
                    ask("select count(*) from order_line where d = ?", d));
            same("balances of " + d, ask("select sum(balance) + sum(paid) from customer where d = ?", d),
                    ask("select sum(l.amount) from order_line l join orders o on o.d = l.d and o.id = l.o"
                            + " where l.d = ? and o.carrier is not null", d));
        }
        same("what was sold", ask("select sum(sold) from stock"), ask("select sum(quantity) from order_line"));
    }

    public static void main(String[] args) throws SQLException {
        int transactions = Integer.parseInt(args[1]);
        long sum = 0;
        try (Connection db = DriverManager.getConnection("jdbc:h2:mem:tpcc")) {
            db.setAutoCommit(false);
            Tpcc tpcc = new Tpcc(db, Integer.parseInt(args[0]), Long.parseLong(args[2]));
            tpcc.create();
            for (int i = 0; i < transactions; i++) {
                int what = tpcc.random.nextInt(100);
                if (what < 45) {
                    tpcc.order();
                } else if (what < 88) {
                    tpcc.pay();
                } else if (what < 92) {
                    sum = 31 * sum + tpcc.look();
                } else if (what < 96) {
                    tpcc.deliver();
                } else {
                    sum = 31 * sum + tpcc.stock();
                }
            }
            tpcc.check();
            sum = 31 * sum + tpcc.ask("select sum(balance) from customer");
        }
        System.out.println("ok " + Long.toHexString(sum));
    }
}
