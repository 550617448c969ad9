import java.sql.*;

/** KeyTables URL [shutdown URL]: tables with keys that are made, changed and dropped; prints what the engine tells of them. */
public class KeyTables {
    static final String[] STEPS = {
        "create table two (\"a,b\" int not null, \"q\"\"x\" varchar(9) not null, c int not null, primary key (c, \"a,b\"))",
        "create table keyless (id int, v int unique)",
        "create table later (id int not null, w varchar(20) not null, v int)",
        "alter table later add constraint pk_later primary key (w, id)",
        "create table gone (id int primary key, v int)",
        "alter table gone drop primary key",
        "create table other (id int not null, v int not null, constraint u unique (id), primary key (v))",
        "create table fewer (x int, id int primary key, y int)",
        "alter table fewer drop column x",
        "create table renamed (id int primary key)",
        "create table again (id int primary key, v int)",
        "drop table again",
        "create table again (id int, v int primary key)",
    };

    public static void main(String[] given) throws Exception {
        Connection connection = DriverManager.getConnection(given[0], "sa", "");
        Statement statement = connection.createStatement();
        for (String one : STEPS) statement.execute(one);
        boolean derby = given.length > 1;
        statement.execute(derby ? "rename column renamed.id to k" : "alter table renamed alter column id rename to k");
        statement.execute(derby ? "rename table renamed to newer" : "alter table renamed rename to newer");
        DatabaseMetaData told = connection.getMetaData();
        ResultSet tables = told.getTables(null, derby ? "SA" : "PUBLIC", null, new String[] {"TABLE"});
        while (tables.next()) {
            String name = tables.getString("TABLE_NAME");
            ResultSet keys = told.getPrimaryKeys(null, tables.getString("TABLE_SCHEM"), name);
            System.out.println("TABLE\t" + tables.getString("TABLE_SCHEM") + "." + name);
            while (keys.next()) System.out.println("KEY\t" + keys.getInt("KEY_SEQ") + "\t" + keys.getString("COLUMN_NAME"));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
