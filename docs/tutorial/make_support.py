"""Write the messages of the tutorial on labelling: ``python docs/tutorial/make_support.py [--labels]``.

``support.csv`` has 1,000 invented messages to a shop, and ``support.txt`` the label tree. Each message combines a
sentence of its label with other sentences and words. With ``--labels``, ``support-labels.csv`` has the label of each
message too; the tutorial's pictures and outputs were made with it.
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
MESSAGES = 1000
ITEMS = "lamp|kettle|jacket|backpack|tent|headphones|desk chair|rug|toaster|bike helmet|boots|blender|mirror|speaker"
TIMES = "since Monday|for a week|since yesterday|for ten days|since last Friday|for two weeks"
DAYS = "on Monday|on Tuesday|last week|on the third|on Saturday|two days ago|this morning"
TOWNS = "Leeds|Bath|York|Derby|Exeter|Oxford"
OPENINGS = "|||||Hello,|Hi,|Good morning,|Dear team,|Hello there,"
ENDINGS = "||||||Thanks.|Thank you!|Please help.|Kind regards, Sam|Best, Jo|What should I do?|Please reply soon."

# Label: sentences, and sentences that may follow.
LABELS = {
    "Orders > Change an order": """
        I chose the wrong colour for the {item}, can you switch it to grey?
        Please add a second {item} to the order that I placed {day}.
        I ordered one {item} too many, please make it one instead of two.
        Can I still alter what I ordered {day}?
        Could you swap the {item} in my basket for the larger model? The order has gone through already.
        I forgot the {item}, can it still go into the order from {day}?
        --
        It has not been packed yet.
        The page has no button for changes.
        """,
    "Orders > Cancel an order": """
        Please cancel my order of the {item}.
        I no longer need the {item} that I ordered {day}.
        I ordered the {item} twice by mistake, please drop one of the two orders.
        How do I withdraw an order that is not shipped yet?
        I changed my mind about the {item}, do not send it.
        Stop the order from {day}, I found the {item} elsewhere.
        --
        The button for cancelling is grey.
        I want to stop it before it leaves.
        """,
    "Orders > No confirmation": """
        I ordered a {item} {day} and never got a confirmation.
        Did my order go through? There was no mail afterwards.
        The page froze after I clicked on buy, do you have my order for the {item}?
        No email with an order number has come {since}.
        I do not know whether the {item} is ordered, because nothing arrived in my inbox.
        How can I check that you received my order?
        --
        It is not in the spam folder either.
        I have no order number.
        """,
    "Orders > Order status": """
        My order says "in progress" {since}, what does that mean?
        When will you send the {item} that I ordered {day}?
        Has the {item} left your warehouse?
        Where can I see the state of my order?
        The status of my order has not changed {since}.
        Which step is my order at?
        --
        I would like to know when it ships.
        My account shows nothing new.
        """,
    "Delivery > Late parcel": """
        The {item} should have come {day} and is still not here.
        My parcel is {n} days late.
        You promised the {item} within two days, I have been waiting {since}.
        The delivery date has been put off again.
        Why does the delivery of the {item} take so long?
        I stayed at home {day} and no driver came.
        --
        The tracking shows that it is on its way.
        I need it for the weekend.
        """,
    "Delivery > Lost parcel": """
        The tracking says delivered, but there is no {item}.
        My parcel has disappeared, the carrier cannot find it.
        The driver says he left the {item} at the door, and nothing was there.
        No neighbour has my parcel, and the carrier calls it delivered.
        The tracking has stood still {since}, I believe the {item} is lost.
        Somebody has taken the parcel from my porch.
        --
        Please send another one.
        The carrier sent me to you.
        """,
    "Delivery > Wrong address": """
        I moved house and the {item} is going to my old street.
        The house number of my delivery is wrong, please correct it.
        Can the parcel with the {item} go to my office instead?
        I typed the wrong postcode when I ordered the {item}.
        Please send the parcel to {town} and not to my home.
        The label shows the address of my former flat.
        --
        The parcel has left already.
        The rest of the address is right.
        """,
    "Delivery > Damaged parcel": """
        The box was crushed and the {item} inside is broken.
        The parcel came open, and the {item} is scratched.
        The {item} arrived in pieces {day}.
        The packaging was wet and the {item} has stains.
        Glass fell out when I opened the parcel with the {item}.
        The carrier dropped the parcel and the {item} has a dent.
        --
        I have pictures of the box.
        The driver saw it too.
        """,
    "Returns > How to return": """
        I want to send back the {item}, where is the label?
        How do I return a {item} that I do not like?
        There was no return slip in the box with the {item}.
        Do I have to pay the postage if I send the {item} back?
        Where do I drop off a parcel that I return?
        Can I return the {item} without the original box?
        --
        I have no printer.
        It is unused.
        """,
    "Returns > Refund": """
        I returned the {item} {day} and have not got my money back.
        When will I be refunded for the {item}?
        You refunded less than I paid for the {item}.
        The money for my return has not reached my bank {since}.
        My refund went to a card that I no longer have.
        You confirmed the return of the {item}, but the refund is missing.
        --
        I sent everything back.
        My bank sees no incoming payment.
        """,
    "Returns > Exchange": """
        The {item} is too small, can I exchange it for a larger one?
        I would like the {item} in blue instead of green.
        Please swap the {item} for the other model.
        You sent a medium, I need a large, how do I exchange it?
        Can I exchange the {item} in a shop?
        I want another size, not my money.
        --
        I pay the difference if there is one.
        The other size is in stock.
        """,
    "Returns > Return period": """
        How many days do I have to send the {item} back?
        I bought the {item} {n} weeks ago, is it too late for a return?
        Is the time for returns longer at Christmas?
        Until which date can I give back the {item}?
        I was in hospital and missed the deadline for the return.
        Does the period for returns begin with the order or the delivery?
        --
        I could not find this in your terms.
        It is a present.
        """,
    "Payment > Card declined": """
        My card is declined when I try to buy the {item}.
        The payment fails at the last step with an error.
        The shop does not accept my credit card, although it works elsewhere.
        I get "payment refused" {since}.
        The code from my bank is rejected at the checkout.
        Paying for the {item} is impossible, each card is turned down.
        --
        My bank says that all is well.
        I tried two browsers.
        """,
    "Payment > Charged twice": """
        You took the money for the {item} twice.
        My account was debited two times {day}.
        I paid once, but the bank shows two payments for the {item}.
        There is a double charge on my card.
        The amount for the {item} was booked again {day}.
        Why is the same sum taken a second time?
        --
        Please give back one of them.
        I only have one order.
        """,
    "Payment > Invoice": """
        I need an invoice for the {item} with the name of my firm.
        Where can I download the bill for the order from {day}?
        The invoice for the {item} has no tax number.
        Please send the receipt again, I need it for my tax return.
        The invoice shows the wrong company.
        There was no bill in the parcel with the {item}.
        --
        Our bookkeeping asks for it.
        A PDF is enough.
        """,
    "Payment > Voucher": """
        My voucher code does not work for the {item}.
        The discount of {n} percent was not taken off at the checkout.
        I forgot to enter the code when I bought the {item}.
        My gift card shows no balance.
        Can I use two vouchers for one order?
        The code from your newsletter has expired, although it is new.
        --
        The page says the code is invalid.
        The discount ends today.
        """,
    "Account > Password": """
        I forgot my password.
        I cannot log in {since}.
        The link to reset my password does not work.
        My account is locked after too many attempts.
        The mail for a new password never comes.
        Signing in fails although the password is right.
        --
        I tried on my phone too.
        I need to see my {item} order.
        """,
    "Account > Personal details": """
        I married and have a new name, how do I change it in my account?
        Please change the email address of my account.
        My phone number is wrong in my profile.
        How do I replace the address that is stored in my account?
        The date of birth in my profile is wrong.
        I want to remove an old card from my stored details.
        --
        The page does not let me save it.
        The old one is no longer valid.
        """,
    "Account > Delete the account": """
        Please delete my account and all my data.
        How do I close my customer account?
        I want you to erase everything that you store about me.
        I no longer shop with you, remove my profile.
        Which data do you hold about me? Please delete them.
        I have two accounts, please remove one.
        --
        I refer to my right to be forgotten.
        Please confirm it in writing.
        """,
    "Account > Newsletter": """
        I get your advertising every day, please stop it.
        How do I unsubscribe from the newsletter?
        I unsubscribed {day} and still get your mails.
        I would like to receive your newsletter again.
        Please take me off your mailing list.
        The link for unsubscribing leads to an empty page.
        --
        I never asked for it.
        Mails about my orders are fine.
        """,
    "Products > Size": """
        Which size of the {item} should I take?
        How wide is the {item}?
        Does the {item} run small?
        What are the dimensions of the {item} in centimetres?
        I am between two sizes, which {item} fits?
        How tall is the {item} and what does it weigh?
        --
        The size chart is missing.
        It has to fit into a small flat.
        """,
    "Products > Availability": """
        When will the {item} be in stock again?
        The {item} is sold out, will you get more?
        Is the {item} still made?
        Can you tell me when the black {item} can be ordered?
        Will there be more of the {item} before summer?
        Your page says "not available" for the {item} {since}.
        --
        I would also take another colour.
        Please send me a mail when it is back.
        """,
    "Products > Material and care": """
        Can I wash the {item} in the machine?
        What is the {item} made of?
        How do I clean the {item}?
        Is there leather in the {item}?
        How do I get a stain out of the {item}?
        I am allergic to nickel, does the {item} contain any?
        --
        The leaflet does not say it.
        I do not want to spoil it.
        """,
    "Products > Compatibility": """
        Does the {item} work with the one from last year?
        Which batteries fit the {item}?
        Can I use the {item} with an American plug?
        Is the {item} compatible with my phone?
        Do the accessories of the old {item} fit the new one?
        Does the {item} need an app?
        --
        The description does not mention it.
        Mine is the older version.
        """,
    "Warranty > Defect": """
        The {item} stopped working after {n} weeks.
        The {item} no longer switches on.
        The seam of the {item} came apart after a month.
        The {item} makes a strange noise {since}.
        The zip of my {item} is broken after little use.
        My {item} from last year is faulty.
        --
        I used it with care.
        I still have the receipt.
        """,
    "Warranty > Spare part": """
        Where can I get a new lid for the {item}?
        I lost a screw of the {item}, can you send one?
        Do you sell replacement cushions for the {item}?
        One part was missing from the set for the {item}.
        I need another cable for the {item}.
        Which part number does the foot of the {item} have?
        --
        The rest is fine.
        I would pay for it.
        """,
    "Warranty > Repair": """
        Do you repair a {item}?
        How long does the repair of my {item} take?
        I sent the {item} in for repair {day} and heard nothing.
        What does it cost to have the {item} mended?
        The {item} came back from the workshop and is still broken.
        Is there a workshop in {town} that fixes the {item}?
        --
        I would rather keep it than buy a new one.
        The workshop does not answer.
        """,
    "Warranty > Warranty period": """
        How long is the guarantee on the {item}?
        Is my {item} from two years ago still under warranty?
        Does the warranty also hold for a {item} that was a present?
        Do I need to register the {item} for the guarantee?
        Which damage does the warranty of the {item} cover?
        I lost the receipt, is the {item} still covered?
        --
        The booklet does not say.
        I bought it in your shop.
        """,
    "Shops > Opening hours": """
        When does the shop in {town} open on Saturday?
        Are you open on bank holidays in {town}?
        Until when can I come to the shop tonight?
        Is the {town} branch closed for lunch?
        What are the opening times of your shop in {town}?
        Is the shop in {town} open on Sunday?
        --
        The website shows two different times.
        I come by train.
        """,
    "Shops > Pick up in a shop": """
        Can I collect the {item} at the shop in {town}?
        I got a message that the {item} is ready, where is the counter?
        How long do you keep the {item} for me at the shop?
        Can my brother pick up the {item} for me?
        I was at the shop in {town} to collect my order, and it was not there.
        Which papers do I need to fetch my order in {town}?
        --
        I ordered it online.
        I have the pick-up code.
        """,
    "Shops > Complaint about staff": """
        The assistant in {town} was rude to me {day}.
        Nobody helped me in the {town} shop although I asked three times.
        Your cashier laughed at my question about the {item}.
        I waited half an hour at the till in {town}, and the staff were chatting.
        The man at the service desk in {town} shouted at my wife.
        I was treated badly when I asked about the {item} in {town}.
        --
        I expect an apology.
        I would like to talk to the manager.
        """,
    "Shops > Praise": """
        The lady at the desk in {town} was wonderful, please thank her.
        I want to praise your team in {town}.
        Great advice about the {item} in the {town} shop!
        The young man in {town} found the right {item} for me at once.
        I have seldom been served so kindly as {day} in {town}.
        Your staff in {town} carried the {item} to my car, thank you.
        --
        I will come again.
        Such service is rare.
        """,
}


def main() -> None:
    """Write the files."""
    generator, rows, seen = random.Random(35), list[tuple[str, str]](), set[str]()
    labels = list(LABELS)
    while len(rows) < MESSAGES:
        label = labels[len(rows) % len(labels)] if len(rows) < 640 else generator.choice(labels)
        text = message(LABELS[label], generator)
        if text not in seen:
            seen.add(text)
            rows.append((text, label))
    generator.shuffle(rows)
    with_labels = "--labels" in sys.argv[1:]
    with (FOLDER / ("support-labels.csv" if with_labels else "support.csv")).open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["id", "text", "labels"][: 2 + with_labels])
        writer.writerows((f"m{number}", *row[: 1 + with_labels]) for number, row in enumerate(rows, 1))
    tree = [line for label in LABELS for line in (label.split(" > ")[0], label)]
    (FOLDER / "support.txt").write_text("\n".join(dict.fromkeys(tree)) + "\n")


def message(block: str, generator: random.Random) -> str:
    """Return a message of a label."""
    first, more = (part.strip().splitlines() for part in block.split("--"))
    choices = {"item": ITEMS, "since": TIMES, "day": DAYS, "town": TOWNS, "n": "3|4|5|6|10"}
    words = {name: generator.choice(values.split("|")) for name, values in choices.items()}
    parts = [generator.choice(OPENINGS.split("|")), generator.choice(first).strip()]
    parts += [generator.choice(more).strip() if generator.random() < 0.5 else "", generator.choice(ENDINGS.split("|"))]
    return " ".join(part for part in parts if part).format(**words)


if __name__ == "__main__":
    main()
