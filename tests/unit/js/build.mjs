/** Lists of chunks on standard input, the messages they make on standard output. */

import { MessageBuilder } from "../../../django_streams/static/django_streams/message.js";

let input = "";
for await (const data of process.stdin) input += data;
const messages = JSON.parse(input).map((chunks) => {
  const builder = new MessageBuilder({ id: "a1" });
  for (const chunk of chunks) builder.apply(chunk);
  return builder.message;
});
process.stdout.write(JSON.stringify(messages));
