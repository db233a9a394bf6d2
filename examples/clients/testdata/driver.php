<?php
// Runs orders.php against real servers, for the test: insert ID QUANTITY | handle < event. In PHP's own web server it is a
// service that closes orders.
declare(strict_types=1);

require __DIR__ . '/../php/orders.php';

function connect(): PDO
{
    return new PDO('mysql:host=127.0.0.1;port=' . getenv('DB_PORT') . ';dbname=' . getenv('DB_NAME'), 'root', '', [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

if (($argv[1] ?? '') === 'insert') {
    insertOrder(connect(), $argv[2], 'virtual', ['b' => (int) $argv[3], 'a' => 1]);
} elseif (($argv[1] ?? '') === 'handle') {
    $db = connect();
    $event = stream_get_contents(STDIN);
    $work = fn (array $data) => execute($db, 'INSERT INTO work (order_id) VALUES (?)', [$data['order_id']]);
    try {
        handle($db, $event, function (array $data) use ($work): void {
            $work($data);
            throw new RuntimeException('on purpose');
        });
    } catch (RuntimeException) {
    }
    $lost = false;
    $loseOnce = function (array $data) use ($db, $work, &$lost): void {
        $work($data);
        if (!$lost) {
            $lost = true;
            $db->exec("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1020, MESSAGE_TEXT = 'lost'");
        }
    };
    handle($db, $event, $loseOnce);
    handle($db, $event, $loseOnce);
} else {
    $body = file_get_contents('php://input');
    $of = fn (string $name) => $_SERVER["HTTP_WEBHOOK_$name"] ?? '';
    if (!verified(getenv('SECRET'), $of('ID'), $of('TIMESTAMP'), $of('SIGNATURE'), $body)) {
        http_response_code(401);
        exit;
    }
    header('Content-Type: application/json');
    echo json_encode(['verdicts' => array_map(fn (array $o) => ['order_id' => $o['order_id'], 'verdict' => 'closed'], json_decode($body, true)['orders'])]);
}
